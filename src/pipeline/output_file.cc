#include <fmt/format.h>

#include "bitwright/bitwright.h"

namespace bw {
namespace {

namespace fs = std::filesystem;

// The file that writing to `path` would reach: links followed, though what they point to need not exist.
fs::path target_of(fs::path path) {
  constexpr int kMostLinks = 40;  // as the system's own
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(path, error)); ++i) {
    const fs::path to = fs::read_symlink(path, error);
    path = to.is_absolute() ? to : path.parent_path() / to;
  }
  const fs::path real = fs::weakly_canonical(path, error);
  return error ? path : real;
}

bool lies_in(const fs::path& directory, const fs::path& path) {
  return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first == directory.end();
}

// True if `target` is `other`, lies in it, or is what one of its entries is linked to (as in hubs' caches).
bool touches(const fs::path& target, const fs::path& other) {
  if (lies_in(target_of(other), target)) return true;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(other, error)) {
    if (entry.is_symlink(error) && lies_in(target_of(entry.path()), target)) return true;
  }
  return false;
}

}  // namespace

void check_output_file(const fs::path& file, std::string_view name, const std::vector<fs::path>& others) {
  if (fs::is_directory(file)) {
    throw Error(ErrorCode::kUsage, fmt::format("{} {}: it is a directory", name, file.string()), "give a file");
  }
  const fs::path target = target_of(file);
  for (const fs::path& other : others) {
    if (other.empty() || !touches(target, other)) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("{} {}: it would be written into {}", name, file.string(), other.string()),
                "choose another place; what is read is never written to");
  }
}

}  // namespace bw
