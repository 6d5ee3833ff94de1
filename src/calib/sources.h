// Where calibration text comes from: files, directories and patterns, as files in an order that does not depend on the
// file system.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace bw::calib {

// One entry of what the user has given.
struct Source {
  std::string name;                          // for reports: the last part of the path or pattern
  std::vector<std::filesystem::path> files;  // at least one
  std::optional<double> weight;              // of all sources or of none
};

// Each of `paths` is a file, a directory (its .txt and .jsonl files and those below, without hidden ones, sorted by
// path) or, where nothing has that name, a pattern with *, ? or [...] whose matches are sorted. weights: empty, or one
// for each. Throws Error(kIo) for what is not there, naming a file of the same directory that is called nearly so, and
// for directories and patterns without a file; Error(kUsage) for weights that are not above 0, or too few or many.
std::vector<Source> find_sources(std::span<const std::filesystem::path> paths, std::span<const double> weights);

// Of all sources, in order.
std::vector<std::filesystem::path> files_of(std::span<const Source> sources);

}  // namespace bw::calib
