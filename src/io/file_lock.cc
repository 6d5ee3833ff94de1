#include "io/file_lock.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "bitwright/error.h"

namespace bw::io {

FileLock::FileLock(const std::filesystem::path& path) {
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw Error(ErrorCode::kIo, path.string() + ": cannot be opened: " + std::strerror(errno));
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  close(fd_);
  if (error == EWOULDBLOCK) {
    throw Error(ErrorCode::kIo, path.string() + ": another run holds it",
                "wait for it to end, or choose another output");
  }
  throw Error(ErrorCode::kIo, path.string() + ": cannot be locked: " + std::strerror(error));
}

FileLock::~FileLock() { close(fd_); }

}  // namespace bw::io
