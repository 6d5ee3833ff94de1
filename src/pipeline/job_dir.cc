#include "pipeline/job_dir.h"

#include <fmt/format.h>

#include "base/hash.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;
using State = io::PieceDir::State;

constexpr const char* kJob = "job.piece";
constexpr const char* kJobKey = "bitwright job 1";

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

}  // namespace

std::string text_fingerprint(const std::vector<fs::path>& files) {
  if (files.empty()) return "self-written";
  Hasher hasher;
  for (const fs::path& file : files) {
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
  return fmt::format("what is finished is kept in {}; run the same command again to go on", work.string());
}

JobDir::JobDir(const fs::path& path, const JobIdentity& identity, const WorkOptions& options, const Reporter& reporter)
    : work_((check_seconds(options.checkpoint_seconds), path)),
      identity_(identity),
      reporter_(reporter),
      seconds_(options.checkpoint_seconds) {
  if (options.restart) work_.clear();
  switch (work_.check(kJob, kJobKey)) {
    case State::kWhole: {
      const io::PieceReader job(work_, kJob);
      const std::string model = job.header().value("model", ""), text = job.header().value("text", "");
      if (model != identity.model) of_another(path, "model", model, identity.model);
      if (text != identity.text) of_another(path, "text", text, identity.text);
      return;
    }
    case State::kOther:
      throw Error(ErrorCode::kUsage, fmt::format("{}: it was made by another version of Bitwright", path.string()),
                  "finish it with that version, choose another --work, or give --restart to begin anew");
    case State::kDamaged:
      reporter_.warn("resume", fmt::format("{}: {} is damaged; all begins anew", path.string(), kJob));
      work_.clear();
      break;
    case State::kAbsent:
      work_.clear();  // killed before there was anything
      break;
  }
  io::PieceWriter(work_, kJob, {{"model", identity.model}, {"text", identity.text}}).seal(kJobKey);
}

JobDir::~JobDir() {
  std::error_code ignored;
  if (fs::exists(work_.path(), ignored) && !work_.holds_more_than(kJob)) work_.remove();
}

bool JobDir::has(const io::PieceDir& dir, std::string_view name, std::string_view key) const {
  const State state = dir.check(name, key);
  if (state == State::kWhole) return true;
  if (state == State::kDamaged) {
    reporter_.warn("resume", fmt::format("{}: it is damaged and made again", dir.file(name).string()));
  } else if (state == State::kOther) {
    reporter_.note("resume", fmt::format("{}: made with other options, made again", dir.file(name).string()));
  }
  dir.discard(name);
  return false;
}

bool JobDir::due() const {
  if (reporter_.wants_end()) return true;
  return std::chrono::duration<double>(Clock::now() - last_).count() >= seconds_;
}

}  // namespace bw::pipeline
