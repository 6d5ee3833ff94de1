// An advisory lock on a file, to keep two runs out of one directory.
#pragma once

#include <filesystem>

namespace bw::io {

// Holds the lock as long as it lives; the system drops it when the process ends, however it ends.
class FileLock {
 public:
  // Creates the file if it is absent. Throws Error(kIo) if it cannot be opened, or if another process holds the lock.
  explicit FileLock(const std::filesystem::path& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace bw::io
