#include "pipeline/job_dir.h"

#include <optional>

#include <fmt/format.h>

#include "base/hash.h"
#include "calib/sources.h"
#include "pipeline/job_pieces.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;
using State = io::PieceDir::State;

constexpr const char* kJobKey = "bitwright job 2";

[[noreturn]] void of_another(const fs::path& path, std::string_view what, std::string_view found,
                             std::string_view expected) {
  throw Error(ErrorCode::kUsage,
              fmt::format("{}: it belongs to a job on another {} (fingerprint {}, this one has {})", path.string(),
                          what, found, expected),
              fmt::format("restore that {}, choose another --work, or give --restart to begin anew", what));
}

void check_seconds(double seconds) {
  if (seconds >= 0) return;  // not so for NaN
  throw Error(ErrorCode::kUsage, fmt::format("--checkpoint {}: it must be 0 or more seconds", seconds));
}

// With its length, so that parts cannot be taken for other parts put together.
void add_part(Hasher& hasher, std::string_view part) {
  const uint64_t size = part.size();
  hasher.update_values(std::span<const uint64_t>(&size, 1));
  hasher.update(std::as_bytes(std::span(part.data(), part.size())));
}

bool holds_work(const fs::path& work) noexcept {
  return io::holds_other_pieces(work, {kJobPiece, kPlacePiece, kWarningPrefix});
}

// None: it cannot be understood.
std::optional<JobIdentity> kept_identity(const io::PieceDir& work) {
  JobIdentity found;
  const auto read = [&](const io::PieceReader& job) {
    job.header().at("model").get_to(found.model);
    job.header().at("text").get_to(found.text);
    found.layers = job.number("layers", SIZE_MAX);
    return job.left() == 0;
  };
  return io::read_piece(work, kJobPiece, read) ? std::optional(found) : std::nullopt;
}

bool is_record(std::string_view name) { return name.starts_with(kFinishedPrefix); }

}  // namespace

std::string text_fingerprint(const std::vector<fs::path>& files) {
  if (files.empty()) return "self-written";
  Hasher hasher;
  for (const fs::path& file : calib::files_of(calib::find_sources(files, {}))) {
    add_part(hasher, io::read_file(file, UINT64_MAX));
  }
  return hasher.hex();
}

std::string piece_key(std::initializer_list<std::string_view> parts) {
  Hasher hasher;
  for (const std::string_view part : parts) add_part(hasher, part);
  return hasher.hex();
}

std::string kept_advice(const fs::path& work) {
  if (!holds_work(work)) return "nothing was finished yet that could be kept: the same command begins anew";
  return fmt::format("what is finished is kept in {}; run the same command again to go on", work.string());
}

JobDir::JobDir(const fs::path& path, const JobIdentity& identity, const WorkOptions& options, Reporter& reporter)
    : work_((check_seconds(options.checkpoint_seconds), path)),
      identity_(identity),
      reporter_(reporter),
      seconds_(options.checkpoint_seconds) {}

void JobDir::begin(bool restart) {
  if (restart) work_.clear();
  switch (work_.check(kJobPiece, kJobKey)) {
    case State::kOther:
      throw Error(ErrorCode::kUsage,
                  fmt::format("{}: it was made by another version of Bitwright", work_.path().string()),
                  "finish it with that version, choose another --work, or give --restart to begin anew");
    case State::kWhole:
      if (const auto found = kept_identity(work_)) {
        if (found->model != identity_.model) of_another(work_.path(), "model", found->model, identity_.model);
        if (found->text != identity_.text) of_another(work_.path(), "text", found->text, identity_.text);
        if (found->layers == identity_.layers) return;
      }
      [[fallthrough]];
    case State::kDamaged:
      reporter_.warn("resume", fmt::format("{}: {} is damaged; all begins anew", work_.path().string(), kJobPiece));
      work_.clear(is_record);
      break;
    case State::kAbsent:
      work_.clear(is_record);  // killed before there was anything, or when all was finished
      break;
  }
  io::PieceWriter(work_, kJobPiece,
                  {{"model", identity_.model}, {"text", identity_.text}, {"layers", identity_.layers}})
      .seal(kJobKey);
}

JobDir::~JobDir() {
  std::error_code ignored;
  if (fs::exists(work_.path(), ignored) && !holds_work(work_.path())) work_.remove();
}

void JobDir::remove() noexcept {
  try {
    work_.clear([](std::string_view name) { return name.starts_with(kJobPiece) || is_record(name); });
    work_.discard(kJobPiece);
  } catch (...) {  // what cannot be removed stays
  }
  work_.remove();
}

bool JobDir::has(const io::PieceDir& dir, std::string_view name, std::string_view key) const {
  const State state = dir.check(name, key);
  if (state == State::kWhole) return true;
  if (state == State::kDamaged) {
    tell_damaged(dir, name);
  } else if (state == State::kOther) {
    reporter_.note("resume", fmt::format("{}: made with other options, made again", dir.file(name).string()));
  }
  dir.discard(name);
  return false;
}

bool JobDir::read(const io::PieceDir& dir, std::string_view name, std::string_view key,
                  const std::function<bool(io::PieceReader& piece)>& read) const {
  if (!has(dir, name, key)) return false;
  if (io::read_piece(dir, name, read)) return true;
  tell_damaged(dir, name);
  dir.discard(name);
  return false;
}

void JobDir::tell_damaged(const io::PieceDir& dir, std::string_view name) const {
  reporter_.warn("resume", fmt::format("{}: it is damaged and made again", dir.file(name).string()));
}

bool JobDir::due() const {
  if (reporter_.wants_end()) return true;
  return std::chrono::duration<double>(Clock::now() - last_).count() >= seconds_;
}

}  // namespace bw::pipeline
