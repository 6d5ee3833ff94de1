#include "io/work_dir.h"

#include <fstream>

#include <gtest/gtest.h>

#include "bitwright/error.h"
#include "io/file_write.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace bw::io {
namespace {

namespace fs = std::filesystem;
using State = PieceDir::State;

class WorkDirTest : public testing::Test {
 protected:
  void put(const PieceDir& dir, std::string_view name, std::string_view text) { write_file(dir.file(name), text); }
  static void overwrite(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

  test::TempDir temp_;
  fs::path path_ = temp_.path() / "out.work";
};

TEST_F(WorkDirTest, APieceIsThereOnceItIsSealed) {
  const WorkDir dir(path_);
  EXPECT_EQ(dir.check("a.piece", "k"), State::kAbsent);
  put(dir, "a.piece", "text");
  EXPECT_EQ(dir.check("a.piece", "k"), State::kAbsent);
  dir.seal("a.piece", "k");
  EXPECT_EQ(dir.check("a.piece", "k"), State::kWhole);
  EXPECT_EQ(dir.check("a.piece", "other"), State::kOther);
  dir.discard("a.piece");
  EXPECT_EQ(dir.check("a.piece", "k"), State::kAbsent);
  EXPECT_FALSE(fs::exists(dir.file("a.piece")));
}

TEST_F(WorkDirTest, AnyDamageIsSeen) {
  const WorkDir dir(path_);
  const auto fresh = [&] {
    put(dir, "a.piece", "some text");
    dir.seal("a.piece", "k");
  };
  for (const char* text : {"some teXt", "some tex", "", "some text "}) {
    fresh();
    overwrite(dir.file("a.piece"), text);
    EXPECT_EQ(dir.check("a.piece", "k"), State::kDamaged) << text;
  }
  fresh();
  fs::remove(dir.file("a.piece"));
  EXPECT_EQ(dir.check("a.piece", "k"), State::kDamaged);
  fresh();
  for (const std::string seal = read_file(fs::path(dir.file("a.piece")) += ".seal"); const char* text : {"k", "9"}) {
    std::string other = seal;  // of another key, or size, that nobody has sealed it with
    other[other.find(text)] = '7';
    overwrite(fs::path(dir.file("a.piece")) += ".seal", other);
    EXPECT_EQ(dir.check("a.piece", "k"), State::kDamaged) << other;
  }
  for (const char* text : {"", "{", "{}", "[1]", R"({"key": 1})", R"({"key": "k", "bytes": 9})", "\xff",
                           R"({"key": "k", "bytes": 1e300, "xxh3": ""})", R"({"key": "k", "bytes": [], "xxh3": ""})",
                           R"({"key": "k", "bytes": 9, "xxh3": 1})"}) {
    fresh();
    overwrite(fs::path(dir.file("a.piece")) += ".seal", text);
    EXPECT_EQ(dir.check("a.piece", "k"), State::kDamaged) << text;
  }
}

TEST_F(WorkDirTest, AFolderBehindALinkIsEmptiedAndTheLinkStays) {
  fs::create_directory(temp_.path() / "disk");
  fs::create_directory_symlink(temp_.path() / "disk", path_);
  WorkDir dir(path_);
  put(dir, "a.piece", "x");
  dir.remove();
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_TRUE(fs::is_empty(temp_.path() / "disk"));
}

TEST_F(WorkDirTest, ClearsAllButWhatIsToBeKept) {
  const WorkDir dir(path_);
  for (const char* name : {"a.piece", "b.piece"}) {
    put(dir, name, "x");
    dir.seal(name, "k");
  }
  EXPECT_EQ(dir.names(), (std::vector<std::string>{"a.piece", "b.piece"}));
  dir.clear([](std::string_view name) { return name.starts_with("b"); });
  EXPECT_EQ(dir.names(), (std::vector<std::string>{"b.piece"}));
  EXPECT_EQ(dir.check("b.piece", "k"), State::kWhole);
  EXPECT_TRUE(holds_other_pieces(path_, {"a.piece"}));
  EXPECT_FALSE(holds_other_pieces(path_, {"b.piece"}));
}

TEST_F(WorkDirTest, RemovesWhatIsItsOwnAlone) {
  auto dir = std::make_unique<WorkDir>(path_);
  const PieceDir inner = dir->folder("4bpw");
  put(*dir, "a.piece", "x");  // never sealed: the run was killed
  put(inner, "layer.piece.safetensors", "x");
  inner.seal("layer.piece.safetensors", "k");
  overwrite(path_ / "b.piece.tmp-123", "half");
  overwrite(path_ / "b.piece.seal.tmp-123", "half");
  overwrite(path_ / "notes.txt", "mine");
  dir->remove();
  EXPECT_TRUE(fs::exists(path_ / "notes.txt"));
  EXPECT_EQ(std::distance(fs::directory_iterator(path_), {}), 1);
  fs::remove(path_ / "notes.txt");
  dir = nullptr;
  dir = std::make_unique<WorkDir>(path_);
  put(*dir, "a.piece", "x");
  dir->remove();
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(WorkDirTest, RefusesWhatIsNotOurs) {
  fs::create_directory(path_);
  overwrite(path_ / "thesis.txt", "x");
  test::expect_error([&] { WorkDir dir(path_); }, ErrorCode::kUsage, {"was not made by Bitwright"});
  EXPECT_EQ(std::distance(fs::directory_iterator(path_), {}), 1);
  const fs::path file = temp_.path() / "file";
  overwrite(file, "x");
  test::expect_error([&] { WorkDir dir(file); }, ErrorCode::kUsage, {"it is no directory"});
  fs::remove(path_ / "thesis.txt");
  const WorkDir first(path_);  // an empty directory is as good as none
  test::expect_error([&] { WorkDir second(path_); }, ErrorCode::kIo, {"another run holds it"});
}

}  // namespace
}  // namespace bw::io
