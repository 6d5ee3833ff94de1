#include "pipeline/job.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "base/hash.h"
#include "bitwright/bitwright.h"
#include "calib/held_out.h"
#include "pipeline/job_pieces.h"
#include "pipeline/output_file.h"
#include "pipeline/output_place.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;

TokenGains read_gains(io::PieceReader& piece, size_t tokens, size_t layers) {
  TokenGains gains;
  gains.head = piece.read_matrix(tokens, 1);
  for (size_t layer = 0; layer < layers; ++layer) {
    gains.layers.push_back(piece.read_matrix(tokens, model::kLinearsPerLayer));
  }
  return gains;
}

calib::Rows read_rows(io::PieceReader& piece, size_t count, size_t length) {
  calib::Rows rows;
  rows.length = length;
  piece.header().at("source").get_to(rows.source);
  rows.ids.resize(count * length);
  piece.read_values(std::span(rows.ids));
  return rows;
}

// Whether `read` could take what an earlier run has kept under this key, all of it; told as `what`. Else it is still to
// be made.
bool read_kept(const JobDir& job, const char* name, std::string_view key, const char* what,
               const std::function<bool(io::PieceReader& piece)>& read) {
  const bool kept =
      job.read(job.root(), name, key, [&](io::PieceReader& piece) { return read(piece) && piece.left() == 0; });
  if (kept) job.tell_resumed(fmt::format("{} there", what));
  return kept;
}

void keep_gains(const JobDir& job, const io::Json& header, const TokenGains& gains, std::string_view key) {
  io::PieceWriter piece(job.root(), kMeasuredPiece, header);
  piece.write_values(gains.head.span());
  for (const Matrix<float>& layer : gains.layers) piece.write_values(layer.span());
  piece.seal(key);
}

std::string stage_key(const char* stage, const Run& run, const JobDir& job, const calib::Rows& rows, uint64_t seed) {
  return piece_key({stage, engine_key(run), job.identity().model, rows_key(rows), std::to_string(seed)});
}

}  // namespace

fs::path work_path(const WorkOptions& options, const fs::path& model, const fs::path& output) {
  fs::path path = options.path;
  if (path.empty() && fs::exists(output) && !fs::is_regular_file(output) && !fs::is_directory(output)) {
    path = fs::temp_directory_path() / "bitwright.work";
  } else if (path.empty()) {
    path = beside(output, ".work");
  }
  if (options.path.empty() && is_inside(model, path)) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: it lies inside the model directory", output.string()),
                "choose another place for -o; the input is never written to");
  }
  for (const auto& [other, what] : {std::pair{model, "the model directory"}, std::pair{output, "the output"}}) {
    if (!is_inside(other, path)) continue;
    throw Error(ErrorCode::kUsage, fmt::format("--work {}: it is {} or lies inside it", path.string(), what),
                "choose another place");
  }
  return path;
}

std::string engine_key(const Run& run) {
  return fmt::format("{} {} {}", version(), run.device->name(), static_cast<int>(run.precision));
}

std::string rows_key(const calib::Rows& rows) {
  Hasher hasher;
  hasher.update_values(std::span<const uint32_t>(rows.ids));
  return fmt::format("{} {}", rows.length, hasher.hex());
}

calib::Mix rows_of_job(Run& run, const model::ModelDir& dir, const CalibrationOptions& options, JobDir& job) {
  if (!options.files.empty()) return calibration_mix(run, dir, options);
  const std::string key = piece_key({"rows", engine_key(run), job.identity().model,
                                     fmt::format("{} {} {}", options.rows, options.length, options.seed)});
  calib::Mix mix;
  const bool kept =
      read_kept(job, kRowsPiece, key, "the self-written calibration text is", [&](io::PieceReader& piece) {
        const calib::HeldOutShape held_out = calib::held_out_shape(options.rows, options.length);
        mix.rows = read_rows(piece, options.rows, options.length);
        mix.held_out = read_rows(piece, held_out.count, held_out.length);
        const auto known = [&](uint32_t id) { return id < dir.vocab_rows(); };
        return std::ranges::all_of(mix.rows.ids, known) && std::ranges::all_of(mix.held_out.ids, known);
      });
  if (kept) return calib::mix_of(std::move(mix.rows), std::move(mix.held_out));
  mix = calibration_mix(run, dir, options);
  io::PieceWriter piece(job.root(), kRowsPiece, {{"source", mix.rows.source}});
  piece.write_values(std::span<const uint32_t>(mix.rows.ids));
  piece.write_values(std::span<const uint32_t>(mix.held_out.ids));
  piece.seal(key);
  return mix;
}

Measured measure_in_job(Run& run, const model::ModelDir& dir, const calib::Rows& rows, size_t rounding_tokens,
                        uint64_t seed, JobDir& job) {
  const std::string key = piece_key({stage_key("measure", run, job, rows, seed), fmt::format("{}", rounding_tokens)});
  Measured measured;
  const bool kept = read_kept(job, kMeasuredPiece, key, "the measurement is", [&](io::PieceReader& piece) {
    measured.measurement = parse_measurement(piece.header(), kMeasuredPiece);
    require_of_model(measured.measurement, dir, kMeasuredPiece);
    measured.gains = read_gains(piece, rows.ids.size(), dir.config().n_layers);
    return true;
  });
  if (kept) return measured;
  measured = measure_model(run, dir, rows, rounding_tokens, seed, {job, key});
  keep_gains(job, to_json(measured.measurement), measured.gains, key);
  return measured;
}

TokenGains gains_in_job(Run& run, const model::ModelDir& dir, const calib::Rows& rows, uint64_t seed, JobDir& job) {
  const std::string key = stage_key("gains", run, job, rows, seed);
  TokenGains gains;
  const bool kept = read_kept(job, kMeasuredPiece, key, "the gradients are", [&](io::PieceReader& piece) {
    gains = read_gains(piece, rows.ids.size(), dir.config().n_layers);
    return true;
  });
  if (kept) return gains;
  gains = find_gradients(run, dir, rows, seed, {job, key}, nullptr);
  keep_gains(job, {}, gains, key);
  return gains;
}

}  // namespace bw::pipeline
