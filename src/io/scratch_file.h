// A file without a name for what does not fit in memory; it is gone when the program ends, however it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace bw::io {

// Every failure (disk full, ...) throws Error(kIo) with the directory and the system's reason.
class ScratchFile {
 public:
  // In `directory`, which must exist.
  explicit ScratchFile(const std::filesystem::path& directory);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  void write(uint64_t offset, std::span<const std::byte> data);
  void read(uint64_t offset, std::span<std::byte> data) const;

 private:
  std::filesystem::path directory_;
  int fd_ = -1;
};

}  // namespace bw::io
