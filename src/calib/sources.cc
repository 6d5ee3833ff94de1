#include "calib/sources.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <glob.h>

#include "base/ascii.h"
#include "bitwright/error.h"
#include "bitwright/suggest.h"
#include "io/parquet.h"

namespace bw::calib {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool is_text(const fs::path& path) {
  const std::string ending = ascii_lower(path.extension().string());
  return ending == ".txt" || ending == ".jsonl" || (ending == ".parquet" && io::reads_parquet());
}

// No pipe or device; a link that leads nowhere fails when it is read.
bool is_to_be_read(const fs::directory_entry& entry) {
  std::error_code ignored;
  const fs::file_type type = entry.status(ignored).type();
  return type == fs::file_type::regular || type == fs::file_type::not_found;
}

bool by_bytes(const fs::path& a, const fs::path& b) { return a.native() < b.native(); }

// Links to files are followed, links to directories are not: they could lead in circles.
std::vector<fs::path> files_in(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator at(directory, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (is_hidden(at->path())) {
      at.disable_recursion_pending();
    } else if (is_text(at->path()) && is_to_be_read(*at)) {
      files.push_back(at->path());
    }
  }
  if (error) {
    throw Error(ErrorCode::kIo,
                fmt::format("{}: the directory cannot be read: {}", directory.string(), error.message()));
  }
  if (files.empty()) {
    throw Error(ErrorCode::kIo, fmt::format("{}: there is no {} file in it", directory.string(),
                                            io::reads_parquet() ? ".txt, .jsonl or .parquet" : ".txt or .jsonl"));
  }
  std::sort(files.begin(), files.end(), by_bytes);
  return files;
}

bool is_pattern(const fs::path& path) { return path.native().find_first_of("*?[") != std::string::npos; }

std::vector<fs::path> matches_of(const fs::path& pattern) {
  glob_t found{};
  const int status = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<fs::path> paths(found.gl_pathv, found.gl_pathv + (status == 0 ? found.gl_pathc : 0));
  globfree(&found);
  if (paths.empty()) throw Error(ErrorCode::kIo, fmt::format("{}: no file matches this pattern", pattern.string()));
  std::sort(paths.begin(), paths.end(), by_bytes);
  return paths;
}

std::string advice_for(const fs::path& missing) {
  std::vector<std::string> names;
  std::error_code error;
  const fs::path directory = missing.has_parent_path() ? missing.parent_path() : fs::path(".");
  for (fs::directory_iterator at(directory, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const auto near = nearest_word(missing.filename().string(), names);
  return near ? fmt::format("did you mean {}?", (missing.parent_path() / *near).string()) : std::string();
}

std::vector<fs::path> files_at(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return files_in(path);
  if (fs::exists(path, error)) return {path};
  if (!is_pattern(path)) {
    throw Error(ErrorCode::kIo, fmt::format("{}: {}", path.string(), std::strerror(ENOENT)), advice_for(path));
  }
  std::vector<fs::path> files;
  for (const fs::path& match : matches_of(path)) {
    const std::vector<fs::path> more = files_at(match);
    files.insert(files.end(), more.begin(), more.end());
  }
  return files;
}

std::string name_of(const fs::path& path) {
  const fs::path plain = path.has_filename() ? path : path.parent_path();
  return plain.filename().string();
}

}  // namespace

std::vector<Source> find_sources(std::span<const fs::path> paths, std::span<const double> weights) {
  if (!weights.empty() && weights.size() != paths.size()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--calib: {} weights are given for {} sources", weights.size(), paths.size()),
                "give one for each, or none");
  }
  std::vector<Source> sources;
  for (size_t i = 0; i < paths.size(); ++i) {
    Source source;
    if (!weights.empty()) {
      if (!std::isfinite(weights[i]) || weights[i] <= 0) {
        throw Error(ErrorCode::kUsage,
                    fmt::format("--calib {}: its weight {} is not above 0", paths[i].string(), weights[i]));
      }
      source.weight = weights[i];
    }
    source.name = name_of(paths[i]);
    source.files = files_at(paths[i]);
    sources.push_back(std::move(source));
  }
  return sources;
}

std::vector<fs::path> files_of(std::span<const Source> sources) {
  std::vector<fs::path> files;
  for (const Source& source : sources) files.insert(files.end(), source.files.begin(), source.files.end());
  return files;
}

}  // namespace bw::calib
