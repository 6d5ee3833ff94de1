#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "io/file_map.h"
#include "io/file_write.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace bw::io {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempDir;

size_t count_files(const fs::path& directory) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

// Makes every write beyond `bytes` of a file fail, as a full disk does.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit now{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_{};
  void (*handler_)(int);
};

TEST(FileMap, MapsTheWholeFile) {
  const TempDir dir;
  const std::string text(100001, 'x');
  write_file(dir / "a", text);
  FileMap map(dir / "a");
  ASSERT_EQ(map.bytes().size(), text.size());
  EXPECT_EQ(std::memcmp(map.bytes().data(), text.data(), text.size()), 0);
  for (const size_t offset : {size_t{0}, size_t{1}, size_t{4096}, size_t{100000}, size_t{200000}}) {
    map.will_need(offset, SIZE_MAX);
    map.dont_need(offset, 5000);
    map.dont_need(offset, SIZE_MAX);
  }
  EXPECT_EQ(std::memcmp(map.bytes().data(), text.data(), text.size()), 0);
  FileMap moved = std::move(map);
  EXPECT_TRUE(map.bytes().empty());  // NOLINT(bugprone-use-after-move): what a moved map is, is stated
  EXPECT_EQ(moved.bytes().size(), text.size());
  FileMap third;
  third = std::move(moved);
  EXPECT_EQ(third.path(), dir / "a");
}

TEST(FileMap, AnEmptyFileIsAnEmptySpan) {
  const TempDir dir;
  write_file(dir / "a", "");
  EXPECT_TRUE(FileMap(dir / "a").bytes().empty());
}

TEST(FileMap, FollowsLinksAndNamesDanglingOnes) {
  const TempDir dir;
  write_file(dir / "blob", "hello");
  fs::create_symlink("blob", dir / "good");
  fs::create_symlink("../blobs/0123", dir / "bad");
  EXPECT_EQ(FileMap(dir / "good").bytes().size(), 5u);
  EXPECT_EQ(read_file(dir / "good"), "hello");
  expect_error([&] { FileMap map(dir / "bad"); }, ErrorCode::kIo,
               {"bad", "../blobs/0123", "blob is missing", "download"});
  expect_error([&] { read_file(dir / "bad"); }, ErrorCode::kIo, {"bad", "../blobs/0123"});
}

TEST(FileMap, SaysWhyItCannot) {
  const TempDir dir;
  expect_error([&] { FileMap map(dir / "none"); }, ErrorCode::kIo, {"none", "No such file"});
  expect_error([&] { FileMap map(dir.path()); }, ErrorCode::kIo, {dir.path().string(), "not a regular file"});
}

TEST(AtomicFile, IsThereWholeOrNotAtAll) {
  const TempDir dir;
  write_file(dir / "a", "old");
  {
    AtomicFile file(dir / "a");
    file.write("half of the n");
    EXPECT_EQ(file.size(), 13u);
    EXPECT_EQ(read_file(dir / "a"), "old");
  }
  EXPECT_EQ(read_file(dir / "a"), "old");
  EXPECT_EQ(count_files(dir.path()), 1u);
  {
    AtomicFile file(dir / "a");
    file.write("new ");
    file.write("text");
    file.commit();
  }
  EXPECT_EQ(read_file(dir / "a"), "new text");
  EXPECT_EQ(count_files(dir.path()), 1u);
}

TEST(AtomicFile, AFailedWriteLeavesNothing) {
  const TempDir dir;
  const std::string text(100000, 'x');
  {
    const FileSizeLimit full(4096);
    expect_error([&] { write_file(dir / "a", text); }, ErrorCode::kIo, {"a: cannot write: ", "File too large"});
  }
  EXPECT_EQ(count_files(dir.path()), 0u);
  expect_error([&] { write_file(dir / "no" / "a", text); }, ErrorCode::kIo, {"no/a: cannot create", "No such file"});
  fs::create_directory(dir / "folder");
  expect_error([&] { write_file(dir / "folder", text); }, ErrorCode::kIo, {"folder", "rename"});
  EXPECT_EQ(count_files(dir.path()), 1u);
}

TEST(AtomicFile, ALinkStaysAndItsTargetIsWritten) {
  const TempDir dir;
  fs::create_directory(dir / "blobs");
  write_file(dir / "blobs" / "0123", "old");
  fs::create_symlink("blobs/0123", dir / "inner");
  fs::create_symlink("inner", dir / "outer");
  fs::create_symlink("blobs/4567", dir / "dangling");
  fs::create_symlink("circle", dir / "circle");
  write_file(dir / "outer", "new");
  EXPECT_TRUE(fs::is_symlink(dir / "outer") && fs::is_symlink(dir / "inner"));
  EXPECT_FALSE(fs::is_symlink(dir / "blobs" / "0123"));
  EXPECT_EQ(read_file(dir / "blobs" / "0123"), "new");
  write_file(dir / "dangling", "there");
  EXPECT_TRUE(fs::is_symlink(dir / "dangling"));
  EXPECT_EQ(read_file(dir / "blobs" / "4567"), "there");
  EXPECT_EQ(count_files(dir / "blobs"), 2u);
}

TEST(AtomicFile, ADeviceIsWrittenToAndStaysOne) {
  expect_error([] { write_file("/dev/full", "x"); }, ErrorCode::kIo, {"/dev/full: cannot write: ", "No space left"});
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  write_file("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  const TempDir dir;
  fs::create_symlink("/dev/full", dir / "link");
  expect_error([&] { write_file(dir / "link", "x"); }, ErrorCode::kIo, {"link: cannot write: "});
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
}

TEST(AtomicFile, APipeIsWrittenToAndStaysOne) {
  const TempDir dir;
  const fs::path pipe = dir / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  write_file(pipe, "through");
  char text[16];
  EXPECT_EQ(read(reader, text, sizeof(text)), 7);
  close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(count_files(dir.path()), 1u);
}

TEST(AtomicFile, StandardOutputKeepsItsPlaceInAFile) {
  const TempDir dir;
  const int saved = dup(STDOUT_FILENO), file = open((dir / "log").c_str(), O_RDWR | O_CREAT, 0600);
  dup2(file, STDOUT_FILENO);
  EXPECT_EQ(write(STDOUT_FILENO, "a", 1), 1);
  write_file("/dev/stdout", "b");
  EXPECT_EQ(write(STDOUT_FILENO, "c", 1), 1);
  dup2(saved, STDOUT_FILENO);
  close(saved);
  close(file);
  EXPECT_EQ(read_file(dir / "log"), "abc");
}

TEST(ReadFile, KeepsToTheLimit) {
  const TempDir dir;
  const std::string text = std::string("a\0b", 3) + std::string(3000000, 'c');
  write_file(dir / "a", text);
  EXPECT_EQ(read_file(dir / "a"), text);
  EXPECT_EQ(read_file(dir / "a", text.size()), text);
  expect_error([&] { read_file(dir / "a", text.size() - 1); }, ErrorCode::kModel, {"a: larger than"});
  expect_error([&] { read_file("/dev/zero", 1000); }, ErrorCode::kModel, {"/dev/zero: larger than"});
  expect_error([&] { read_file(dir.path()); }, ErrorCode::kIo, {"Is a directory"});
}

TEST(FreeSpace, AsksTheNearestExistingParent) {
  const TempDir dir;
  EXPECT_GT(free_space(dir.path()), 0u);
  EXPECT_GT(free_space(dir.path() / "not" / "yet" / "there"), 0u);
  EXPECT_GT(free_space("relative/and/absent"), 0u);
}

TEST(ScratchFile, GivesBackWhatWasWrittenAndHasNoName) {
  const TempDir dir;
  std::vector<std::byte> back(5);
  {
    ScratchFile file(dir.path());
    EXPECT_EQ(count_files(dir.path()), 0u);
    const auto write = [&](uint64_t at, std::string_view text) { file.write(at, std::as_bytes(std::span(text))); };
    write(7, "hello");
    write(0, "0123456");
    write(8, "a");
    file.read(6, back);
    EXPECT_EQ(std::memcmp(back.data(), "6hall", 5), 0);
    expect_error([&] { file.read(9, back); }, ErrorCode::kIo, {"scratch.piece", "cannot read"});
    const FileSizeLimit limit(4096);
    expect_error([&] { file.write(5000, back); }, ErrorCode::kIo, {"scratch.piece", "cannot write"});
  }
  expect_error([&] { ScratchFile(dir / "nothing"); }, ErrorCode::kIo, {"nothing", "cannot create"});
}

}  // namespace
}  // namespace bw::io
