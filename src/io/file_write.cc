#include "io/file_write.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "bitwright/error.h"
#include "bitwright/units.h"
#include "io/file_map.h"

namespace bw::io {
namespace {

namespace fs = std::filesystem;

// A place that takes bytes but cannot be replaced by a finished file: a device, a pipe, a socket, and a file that is
// named by a descriptor of ours (/dev/stdout).
bool is_stream(const fs::path& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) return false;
  const std::string name = path.lexically_normal().string();
  const bool descriptor =
      name == "/dev/stdout" || name == "/dev/stderr" || name.starts_with("/dev/fd/") || name.starts_with("/proc/");
  return !S_ISREG(info.st_mode) || descriptor;
}

// Where it is one of our own output streams, its descriptor: what both write then stays in order.
int open_stream(const fs::path& path) {
  struct stat target {};
  struct stat own {};
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (stat(path.c_str(), &target) == 0 && fstat(fd, &own) == 0 && target.st_dev == own.st_dev &&
        target.st_ino == own.st_ino) {
      return fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
  }
  return open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
}

[[noreturn]] void fail(const fs::path& path, const char* what, int error) {
  std::string hint;
  if (error == ENOSPC && !is_stream(path))
    hint = format_bytes(free_space(path)) + " are free there: make room or choose another disk";
  throw Error(ErrorCode::kIo, path.string() + ": " + what + ": " + std::strerror(error), hint);
}

// The file that a link stands for, also where it is not there yet. Of a circle of links, one of them.
fs::path link_target(fs::path path) {
  constexpr int kMostLinks = 40;  // as many as Linux follows
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(path, error)); ++i) {
    const fs::path to = fs::read_symlink(path, error);
    if (error) break;
    path = to.is_absolute() ? to : path.parent_path() / to;
  }
  return path;
}

std::atomic<WriteFault> write_fault = nullptr;

// Moves all of the bytes by calls of move(bytes left, how many at most), which are of the system's kind.
template <typename Byte, typename Move>
void move_all(const fs::path& path, const char* what, std::span<Byte> data, const Move& move) {
  constexpr size_t kMostAtOnce = size_t{1} << 30;  // Linux writes, and reads, at most 2 GiB at once
  while (!data.empty()) {
    const ssize_t n = move(data.data(), std::min(data.size(), kMostAtOnce));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(path, what, n < 0 ? errno : EIO);
    data = data.subspan(static_cast<size_t>(n));
  }
}

template <typename Move>
void write_all(const fs::path& path, std::span<const std::byte> data, const Move& move) {
  const WriteFault fault = write_fault;
  if (fault != nullptr && fault()) fail(path, "cannot write", ENOSPC);
  move_all(path, "cannot write", data, move);
}

fs::path directory_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

}  // namespace

void set_write_fault(WriteFault fault) { write_fault = fault; }

AtomicFile::AtomicFile(const fs::path& path) : path_(path), direct_(is_stream(path)) {
  if (direct_) {
    fd_ = open_stream(path_);
    if (fd_ < 0) fail(path_, "cannot open", errno);
    return;
  }
  path_ = link_target(path);
  temporary_ = path_;
  temporary_ += ".tmp-" + std::to_string(getpid());
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail(path_, "cannot create", errno);
}

AtomicFile::~AtomicFile() {
  if (committed_) return;
  if (fd_ >= 0) close(fd_);
  if (!direct_) unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> data) {
  write_all(path_, data, [&](const std::byte* from, size_t n) { return ::write(fd_, from, n); });
  size_ += data.size();
}

void AtomicFile::commit() {
  const bool synced = fsync(fd_) == 0 || (direct_ && (errno == EINVAL || errno == EROFS || errno == ENOTSUP));
  if (!synced) fail(path_, "cannot write to the disk", errno);
  const int fd = fd_;
  fd_ = -1;
  if (close(fd) != 0) fail(path_, "cannot close", errno);
  if (!direct_ && rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "cannot rename the finished file", errno);
  committed_ = true;
  if (!direct_) fsync_directory(directory_of(path_));
}

ScratchFile::ScratchFile(const fs::path& directory) {
  std::string name = (directory / "scratch.piece.tmp-XXXXXX").string();  // killed here, it is cleared as pieces are
  fd_ = mkostemp(name.data(), O_CLOEXEC);
  path_ = name;
  if (fd_ < 0) fail(path_, "cannot create", errno);
  unlink(name.c_str());
}

ScratchFile::~ScratchFile() { close(fd_); }

void ScratchFile::write(uint64_t offset, std::span<const std::byte> data) {
  const auto at = [&](const std::byte* from) { return static_cast<off_t>(offset) + (from - data.data()); };
  write_all(path_, data, [&](const std::byte* from, size_t n) { return pwrite(fd_, from, n, at(from)); });
}

void ScratchFile::read(uint64_t offset, std::span<std::byte> data) const {
  const auto at = [&](const std::byte* to) { return static_cast<off_t>(offset) + (to - data.data()); };
  move_all(path_, "cannot read", data, [&](std::byte* to, size_t n) { return pread(fd_, to, n, at(to)); });
}

void write_file(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

std::string read_file(const fs::path& path, uint64_t max_bytes) {
  check_link(path);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(path, "cannot open", errno);
  std::string text;
  int error = 0;
  struct stat info {};
  if (fstat(fd, &info) != 0) error = errno;
  if (error == 0 && S_ISDIR(info.st_mode)) error = EISDIR;
  // One byte more than allowed tells a file that is too large, also where the size is not known (a pipe).
  const uint64_t limit = max_bytes == UINT64_MAX ? max_bytes : max_bytes + 1;
  size_t step = size_t{1} << 20;
  if (error == 0 && S_ISREG(info.st_mode)) {
    const auto size = static_cast<uint64_t>(info.st_size);
    text.reserve(std::min(size, limit));
    step = std::clamp<uint64_t>(size + 1, 4096, step);  // a small file is not worth a megabyte of zeros
  }
  while (error == 0 && text.size() < limit) {
    const size_t old = text.size();
    const size_t want = static_cast<size_t>(std::min<uint64_t>(step, limit - old));
    text.resize(old + want);
    const ssize_t n = read(fd, text.data() + old, want);
    text.resize(old + (n > 0 ? static_cast<size_t>(n) : 0));
    if (n == 0) break;
    if (n < 0 && errno != EINTR) error = errno;
  }
  close(fd);
  if (error != 0) fail(path, "cannot read", error);
  if (text.size() > max_bytes) {
    throw Error(ErrorCode::kModel,
                path.string() + ": larger than " + format_bytes(max_bytes) + ", the most that is read");
  }
  refuse_lfs_pointer(text, path);
  return text;
}

void fsync_directory(const fs::path& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail(directory, "cannot open", errno);
  // Some network file systems cannot sync a directory; the rename itself has succeeded.
  const int error = fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
  close(fd);
  if (error != 0) fail(directory, "cannot write to the disk", error);
}

uint64_t free_space(const fs::path& path) {
  std::error_code error;
  fs::path at = fs::absolute(path, error);
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  struct statvfs info {};
  if (statvfs(at.c_str(), &info) != 0) {
    throw Error(ErrorCode::kIo, at.string() + ": cannot ask for the free space: " + std::strerror(errno));
  }
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace bw::io
