#include "pipeline/output_place.h"

#include <optional>
#include <string>

#include <fmt/format.h>

#include "bitwright/error.h"
#include "io/file_lock.h"
#include "pipeline/output_config.h"
#include "pipeline/output_file.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;

// Where among its last steps a run was killed.
enum class Stopped {
  kElsewhere,
  kOldMoved,    // what is to be replaced has been moved away, and OUTPUT does not exist
  kNewInPlace,  // OUTPUT is complete; what it replaces may still be there
};
Stopped stopped_at(const fs::path& output) {
  if (fs::exists(output / kPartialMarker)) return Stopped::kNewInPlace;
  const bool moved = !fs::exists(output) && fs::exists(replaced_of(output));
  return moved && fs::exists(partial_of(output) / kPartialMarker) ? Stopped::kOldMoved : Stopped::kElsewhere;
}

}  // namespace

fs::path beside(const fs::path& output, std::string_view suffix) {
  fs::path clean = output.lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();
  clean += suffix;
  return clean;
}

fs::path partial_of(const fs::path& output) { return beside(output, ".partial"); }
fs::path replaced_of(const fs::path& output) { return beside(output, ".replaced"); }

void check_output_path(const fs::path& model, const fs::path& output, bool overwrite) {
  if (is_inside(model, output)) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: the output is the model directory or lies inside it", output.string()),
                "choose another place for -o; the input is never written to");
  }
  if (fs::is_symlink(output)) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: it is a link", output.string()), "give the directory itself");
  }
  if (fs::exists(output) && !fs::is_directory(output)) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: it exists and is no directory", output.string()),
                "it is left as it is; choose another -o");
  }
  if (fs::exists(output) && !fs::is_empty(output)) {
    if (const std::optional<std::string> foreign = foreign_file(output)) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("{}: it exists and was not written by Bitwright alone ('{}')", output.string(), *foreign),
                  "it is left as it is; choose another -o");
    }
    if (!overwrite) {
      throw Error(ErrorCode::kUsage, fmt::format("{}: it exists already", output.string()),
                  "choose another -o, or give --overwrite to replace it");
    }
  }
  const fs::path partial = partial_of(output), replaced = replaced_of(output);
  if (fs::exists(partial) && !fs::exists(partial / kPartialMarker) &&
      !(fs::is_directory(partial) && fs::is_empty(partial))) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: it exists and was not made by Bitwright", partial.string()),
                "move it away, or choose another -o");
  }
  if (fs::exists(replaced) && stopped_at(output) == Stopped::kElsewhere) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: it is left from a run that was stopped", replaced.string()),
                "see whether you still need it, then remove it");
  }
}

void settle_output(const fs::path& output) {
  switch (stopped_at(output)) {
    case Stopped::kNewInPlace: {
      const io::FileLock lock(output / kPartialMarker);
      fs::remove_all(replaced_of(output));
      fs::remove(output / kPartialMarker);
      break;
    }
    case Stopped::kOldMoved: {
      const io::FileLock lock(partial_of(output) / kPartialMarker);
      fs::rename(replaced_of(output), output);
      break;
    }
    case Stopped::kElsewhere:
      break;
  }
}

void abandon_output(const fs::path& output) noexcept {
  try {
    settle_output(output);
    const fs::path partial = partial_of(output);
    if (!fs::exists(partial / kPartialMarker)) return;
    const io::FileLock lock(partial / kPartialMarker);
    fs::remove_all(partial);
  } catch (...) {  // it is in nobody's way
  }
}

}  // namespace bw::pipeline
