#include "io/file_map.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bitwright/error.h"
#include "bitwright/units.h"

namespace bw::io {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what, int error) {
  throw Error(ErrorCode::kIo, path.string() + ": " + what + ": " + std::strerror(error));
}

void advise(const std::byte* data, size_t size, size_t offset, size_t count, int advice, bool whole_pages) noexcept {
  if (offset >= size) return;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t begin = offset;
  size_t end = offset + std::min(count, size - offset);
  if (whole_pages) {
    begin = (begin + page - 1) / page * page;
    if (end != size) end = end / page * page;
  } else {
    begin = begin / page * page;
  }
  if (begin >= end) return;
  // madvise wants a mutable address though these hints change nothing.
  madvise(const_cast<std::byte*>(data) + begin, end - begin, advice);
}

}  // namespace

// A link whose target is gone is the usual damage of a hub cache; "no such file" would send its owner looking for the
// link.
void check_link(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_symlink(path, ignored) || std::filesystem::exists(path, ignored)) return;
  const std::filesystem::path target = std::filesystem::read_symlink(path, ignored);
  throw Error(ErrorCode::kIo, path.string() + ": a link to " + target.string() + ", which does not exist",
              "the blob is missing from the cache: download the model again");
}

void refuse_lfs_pointer(std::string_view begin, const std::filesystem::path& path) {
  if (!begin.starts_with("version https://git-lfs.github.com/")) return;  // its specification: the first line
  throw Error(ErrorCode::kModel, path.string() + ": a Git LFS pointer, not the file itself",
              "fetch the file: git lfs pull in the model directory");
}

FileMap::FileMap(const std::filesystem::path& path) : FileMap() {  // so that it is unmapped whatever is thrown
  path_ = path;
  check_link(path);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe is refused below, not waited for
  if (fd < 0) fail(path, "cannot open", errno);
  struct stat info {};
  const bool known = fstat(fd, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    const int error = errno;
    close(fd);
    if (known) throw Error(ErrorCode::kIo, path.string() + ": not a regular file");
    fail(path, "cannot stat", error);
  }
  size_ = static_cast<size_t>(info.st_size);
  void* data = size_ == 0 ? nullptr : mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (data == MAP_FAILED && error == ENOMEM) {
    throw Error(ErrorCode::kIo,
                path.string() + ": cannot map: out of address space, of which it needs " + format_bytes(size_),
                "raise the limit (ulimit -v)");
  }
  if (data == MAP_FAILED) fail(path, "cannot map", error);
  data_ = static_cast<const std::byte*>(data);
  refuse_lfs_pointer({reinterpret_cast<const char*>(data_), size_}, path);
}

FileMap::~FileMap() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

FileMap::FileMap(FileMap&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

FileMap& FileMap::operator=(FileMap&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void FileMap::will_need(size_t offset, size_t size) const noexcept {
  advise(data_, size_, offset, size, MADV_WILLNEED, false);
}

// Only pages that lie wholly inside: the neighbours' data may still be wanted.
void FileMap::dont_need(size_t offset, size_t size) const noexcept {
  advise(data_, size_, offset, size, MADV_DONTNEED, true);
}

}  // namespace bw::io
