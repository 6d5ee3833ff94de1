#include "pipeline/job.h"

#include <optional>

#include <fmt/format.h>

#include "base/hash.h"
#include "bitwright/bitwright.h"
#include "pipeline/output_file.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRows = "rows.piece";
constexpr const char* kMeasured = "measured.piece";

TokenGains read_gains(io::PieceReader& piece, size_t tokens, size_t layers) {
  TokenGains gains;
  gains.head = piece.read_matrix(tokens, 1);
  for (size_t layer = 0; layer < layers; ++layer) {
    gains.layers.push_back(piece.read_matrix(tokens, model::kLinearsPerLayer));
  }
  return gains;
}

// What an earlier run has kept under this key, told as `what`; none: it is still to be made.
std::optional<io::PieceReader> kept_piece(const JobDir& job, const char* name, std::string_view key, const char* what) {
  if (!job.has(job.root(), name, key)) return std::nullopt;
  job.tell_resumed(fmt::format("{} there", what));
  return io::PieceReader(job.root(), name);
}

void keep_gains(const JobDir& job, const io::Json& header, const TokenGains& gains, std::string_view key) {
  io::PieceWriter piece(job.root(), kMeasured, header);
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
    path = output.lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    path += ".work";
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

calib::Rows rows_of_job(Run& run, const model::ModelDir& dir, const CalibrationOptions& options, JobDir& job) {
  if (!options.files.empty()) return calibration_rows(run, dir, options);
  const std::string key = piece_key({"rows", engine_key(run), job.identity().model,
                                     fmt::format("{} {} {}", options.rows, options.length, options.seed)});
  if (auto piece = kept_piece(job, kRows, key, "the self-written calibration text is")) {
    calib::Rows rows;
    rows.length = options.length;
    rows.source = piece->header().value("source", "");
    rows.ids.resize(options.rows * options.length);
    piece->read_values(std::span(rows.ids));
    return rows;
  }
  calib::Rows rows = calibration_rows(run, dir, options);
  io::PieceWriter piece(job.root(), kRows, {{"source", rows.source}});
  piece.write_values(std::span<const uint32_t>(rows.ids));
  piece.seal(key);
  return rows;
}

Measured measure_in_job(Run& run, const model::ModelDir& dir, const calib::Rows& rows, uint64_t seed, JobDir& job) {
  const std::string key = stage_key("measure", run, job, rows, seed);
  if (auto piece = kept_piece(job, kMeasured, key, "the measurement is")) {
    Measurement m = parse_measurement(piece->header(), job.root().file(kMeasured).string());
    return {std::move(m), read_gains(*piece, rows.ids.size(), dir.config().n_layers)};
  }
  Measured measured = measure_model(run, dir, rows, seed, {job, key});
  keep_gains(job, to_json(measured.measurement), measured.gains, key);
  return measured;
}

TokenGains gains_in_job(Run& run, const model::ModelDir& dir, const calib::Rows& rows, uint64_t seed, JobDir& job) {
  const std::string key = stage_key("gains", run, job, rows, seed);
  if (auto piece = kept_piece(job, kMeasured, key, "the gradients are")) {
    return read_gains(*piece, rows.ids.size(), dir.config().n_layers);
  }
  TokenGains gains = find_gradients(run, dir, rows, seed, {job, key}, nullptr);
  keep_gains(job, {}, gains, key);
  return gains;
}

}  // namespace bw::pipeline
