// The rules of CONTRIBUTING.md that a program can check, on every file of the project.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "layout/source_checks.h"

namespace bw::layout {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFileLines = 500;
constexpr size_t kMaxFunctionLines = 60;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

// Files under `folder` of the project ("" for all), sorted by name; what git ignores (builds, caches) is left out.
std::vector<SourceFile> files_under(const std::string& folder, const std::set<std::string>& extensions) {
  const fs::path root = BW_SOURCE_DIR;
  std::vector<SourceFile> files;
  if (!fs::exists(root / folder)) return files;
  for (fs::recursive_directory_iterator i(root / folder), end; i != end; ++i) {
    const std::string name = i->path().filename().string();
    if (i->is_directory()) {
      const bool ignored =
          name == ".git" || name == ".cache" || name == ".venv" || name == "__pycache__" || name.starts_with("build");
      if (ignored) i.disable_recursion_pending();
    } else if (extensions.empty() || extensions.contains(i->path().extension().string())) {
      files.push_back({i->path().lexically_relative(root).generic_string(), read(i->path())});
    }
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return files;
}

std::vector<SourceFile> cpp_files_under(const std::string& folder) {
  return files_under(folder, {".h", ".cc", ".cu", ".cuh"});
}

void expect_none(const Violations& violations) {
  for (const std::string& line : violations) ADD_FAILURE() << line;
}

TEST(Layout, SourcesIncludeOnlyTheirOwnLayerAndThoseBelow) {
  const std::vector<std::string> layers = layers_of(read(fs::path(BW_SOURCE_DIR) / "CMakeLists.txt"));
  ASSERT_GE(layers.size(), 10u);
  const std::vector<SourceFile> files = cpp_files_under("src");
  ASSERT_FALSE(files.empty());
  for (const SourceFile& file : files) expect_none(check_layering(file, layers));
}

TEST(Layout, TheCommandLineUsesThePublicHeadersOnly) {
  for (const SourceFile& file : cpp_files_under("cli")) expect_none(check_public_only(file));
}

TEST(Layout, PublicHeadersStandAlone) {
  const std::vector<SourceFile> files = cpp_files_under("include");
  ASSERT_FALSE(files.empty());
  for (const SourceFile& file : files) expect_none(check_public_only(file));
}

TEST(Layout, TheLibraryNeverPrintsExitsOrAborts) {
  for (const char* folder : {"src", "include"}) {
    for (const SourceFile& file : cpp_files_under(folder)) expect_none(check_silent(file));
  }
}

TEST(Layout, FilesAndFunctionsAreShort) {
  for (const char* folder : {"src", "include", "cli", "bench", "tests"}) {
    for (const SourceFile& file : cpp_files_under(folder)) {
      expect_none(check_file_length(file, kMaxFileLines));
      expect_none(check_function_length(file, kMaxFunctionLines));
    }
  }
  for (const SourceFile& file : files_under("tools", {".py", ".sh"}))
    expect_none(check_file_length(file, kMaxFileLines));
}

TEST(Layout, EverySourceIsCompiled) {
  // The test program lies in the build folder, beside the record of what was compiled.
  const fs::path record = fs::read_symlink("/proc/self/exe").parent_path() / "compile_commands.json";
  std::set<fs::path> compiled;
  for (const auto& entry : nlohmann::json::parse(read(record)))
    compiled.insert(fs::path(entry.at("file").get<std::string>()));
  for (const char* folder : {"src", "cli"}) {
    for (const SourceFile& file : files_under(folder, {".cc"})) {
      EXPECT_TRUE(compiled.contains(fs::path(BW_SOURCE_DIR) / file.name)) << file.name << " is in no target";
    }
  }
}

TEST(Layout, NoFileNamesAPathOfTheMachineItWasWrittenOn) {
  for (const SourceFile& file : files_under("", {})) {
    const bool binary = file.text.substr(0, 8192).find('\0') != std::string::npos;
    if (!binary) expect_none(check_machine_paths(file));
  }
}

}  // namespace
}  // namespace bw::layout
