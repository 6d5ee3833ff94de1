// Files, directories and patterns as one list.
#include "calib/sources.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "io/file_write.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace bw::calib {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

class Sources : public testing::Test {
 protected:
  void make(const std::string& name) {
    fs::create_directories((dir_ / name).parent_path());
    io::write_file(dir_ / name, "text\n");
  }
  // Names relative to the directory.
  std::vector<std::string> files(const fs::path& spec) {
    std::vector<std::string> names;
    const std::vector<Source> found = find_sources(std::vector{spec}, {});
    for (const fs::path& file : files_of(found)) names.push_back(file.lexically_relative(dir_.path()).string());
    return names;
  }
  using Names = std::vector<std::string>;

  test::TempDir dir_;
};

TEST_F(Sources, ADirectoryIsItsTextsSorted) {
  for (const char* name : {"z.txt", "b/a.jsonl", "a.TXT", "b/c/d.txt", "b.txt", "picture.png", "data.json",
                           ".hidden.txt", ".git/notes.txt", "B.txt"}) {
    make(name);
  }
  const Names expected = {"B.txt", "a.TXT", "b.txt", "b/a.jsonl", "b/c/d.txt", "z.txt"};
  EXPECT_EQ(files(dir_.path()), expected);
  EXPECT_EQ(files(dir_.path() / ""), expected);
  EXPECT_EQ(find_sources(std::vector{dir_ / "b" / ""}, {})[0].name, "b");
  EXPECT_EQ(files(dir_ / ".git"), Names{".git/notes.txt"});  // named, it is meant
}

TEST_F(Sources, LinksToFilesAreFollowedAndCirclesAreNot) {
  make("a/one.txt");
  fs::create_directory_symlink("..", dir_ / "a" / "up");
  fs::create_symlink("one.txt", dir_ / "a" / "two.txt");
  EXPECT_EQ(files(dir_ / "a"), (Names{"a/one.txt", "a/two.txt"}));
}

TEST_F(Sources, APatternIsItsMatchesSorted) {
  for (const char* name : {"b.txt", "a.txt", "c.jsonl", "d/e.txt", "d/f.md", "notes.md"}) make(name);
  EXPECT_EQ(files(dir_ / "*.txt"), (Names{"a.txt", "b.txt"}));
  EXPECT_EQ(files(dir_ / "[ab].*"), (Names{"a.txt", "b.txt"}));
  EXPECT_EQ(files(dir_ / "*/*.txt"), Names{"d/e.txt"});
  EXPECT_EQ(files(dir_ / "?"), Names{"d/e.txt"});  // a directory
  EXPECT_EQ(files(dir_ / "*.md"), Names{"notes.md"});
  EXPECT_EQ(find_sources(std::vector{dir_ / "*.txt"}, {})[0].name, "*.txt");
  expect_error([&] { files(dir_ / "*.rst"); }, ErrorCode::kIo, {"*.rst", "no file matches"});
}

TEST_F(Sources, WhatHasTheNameIsNoPattern) {
  make("[ab].txt");
  make("a.txt");
  EXPECT_EQ(files(dir_ / "[ab].txt"), Names{"[ab].txt"});
}

TEST_F(Sources, WhatIsNotThereIsToldWithWhatIs) {
  make("persuasion.txt");
  expect_error([&] { files(dir_ / "persausion.txt"); }, ErrorCode::kIo,
               {"persausion.txt: No such file or directory", "did you mean", "persuasion.txt?"});
  expect_error([&] { files(dir_ / "other"); }, ErrorCode::kIo, {"other: No such file or directory"});
  fs::create_directory(dir_ / "empty");
  expect_error([&] { files(dir_ / "empty"); }, ErrorCode::kIo, {"empty", "there is no .txt"});
}

TEST_F(Sources, WeightsAreOnePerSourceAndAboveZero) {
  make("a.txt");
  make("b.txt");
  const std::vector<fs::path> both = {dir_ / "a.txt", dir_ / "b.txt"};
  EXPECT_FALSE(find_sources(both, {})[0].weight);
  EXPECT_EQ(find_sources(both, std::vector{1.0, 0.5})[1].weight, 0.5);
  expect_error([&] { find_sources(both, std::vector{1.0}); }, ErrorCode::kUsage, {"1 weights", "2 sources"});
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    expect_error([&] { find_sources(both, std::vector{1.0, bad}); }, ErrorCode::kUsage, {"b.txt", "not above 0"});
  }
  EXPECT_TRUE(find_sources({}, {}).empty());
}

}  // namespace
}  // namespace bw::calib
