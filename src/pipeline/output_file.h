// Whether what is written would touch what is read.
#pragma once

#include <filesystem>

namespace bw::pipeline {

// True if writing to `path` would write to `directory` or inside it, links followed, also those to what does not exist
// yet. A path that cannot be resolved (a pipe of /dev/fd) is inside nothing.
bool is_inside(const std::filesystem::path& directory, const std::filesystem::path& path);

}  // namespace bw::pipeline
