#include "pipeline/output_file.h"

#include <algorithm>

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

// True if writing to `file` would write to `other`, into it, or to what one of its entries is linked to (as in hubs'
// caches).
bool touches(const fs::path& other, const fs::path& file) {
  if (pipeline::is_inside(other, file)) return true;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(other, error)) {
    if (entry.is_symlink(error) && pipeline::is_inside(entry.path(), file)) return true;
  }
  return false;
}

}  // namespace

bool pipeline::is_inside(const fs::path& directory, const fs::path& path) {
  const fs::path outer = target_of(directory), inner = target_of(path);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

void check_output_file(const fs::path& file, std::string_view name, const std::vector<fs::path>& others) {
  if (fs::is_directory(file)) {
    throw Error(ErrorCode::kUsage, fmt::format("{} {}: it is a directory", name, file.string()), "give a file");
  }
  for (const fs::path& other : others) {
    if (other.empty() || !touches(other, file)) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("{} {}: it would be written into {}", name, file.string(), other.string()),
                "choose another place; what is read is never written to");
  }
}

}  // namespace bw
