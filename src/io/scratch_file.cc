#include "io/scratch_file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include <unistd.h>

#include "bitwright/error.h"

namespace bw::io {
namespace {

[[noreturn]] void failed(const std::filesystem::path& directory, const char* what, int error) {
  throw Error(ErrorCode::kIo,
              directory.string() + ": cannot " + what + " a scratch file there: " + std::strerror(error));
}

}  // namespace

ScratchFile::ScratchFile(const std::filesystem::path& directory) : directory_(directory) {
  std::string name = (directory / ".bitwright-scratch-XXXXXX").string();
  fd_ = mkstemp(name.data());
  if (fd_ < 0) failed(directory_, "make", errno);
  unlink(name.c_str());
}

ScratchFile::~ScratchFile() { close(fd_); }

void ScratchFile::write(uint64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = pwrite(fd_, data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) failed(directory_, "write", n < 0 ? errno : ENOSPC);
    offset += static_cast<uint64_t>(n);
    data = data.subspan(static_cast<size_t>(n));
  }
}

void ScratchFile::read(uint64_t offset, std::span<std::byte> data) const {
  while (!data.empty()) {
    const ssize_t n = pread(fd_, data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) failed(directory_, "read", n < 0 ? errno : EIO);
    offset += static_cast<uint64_t>(n);
    data = data.subspan(static_cast<size_t>(n));
  }
}

}  // namespace bw::io
