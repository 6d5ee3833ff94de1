// What is on disk, to be compared.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

namespace bw::test {

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Names and contents of all files of a directory, without reports: they tell times.
inline std::map<std::string, std::string> contents(const std::filesystem::path& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == "report.html" || name == "report.json") continue;
    files[std::filesystem::relative(entry.path(), dir).string()] = read_bytes(entry.path());
  }
  return files;
}

}  // namespace bw::test
