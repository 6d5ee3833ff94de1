// Writing files so that they are there whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace bw::io {

// Writes to PATH.tmp-<pid>; commit() makes it PATH: fsync, rename, fsync of the directory. Without commit() the
// temporary file is removed. A link stays, its target is written. What is no regular file (a device, a pipe,
// /dev/stdout) cannot be replaced and is written to as the data come. Every failure (disk full, ...) throws Error(kIo)
// with the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> data);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  uint64_t size() const { return size_; }
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
  bool direct_ = false;  // written in place: it is no regular file
  uint64_t size_ = 0;
  bool committed_ = false;
};

// Numbers that memory has no room for, on disk while the program runs. The file has no name: it goes with the object,
// however the program ends. Failures as of AtomicFile.
class ScratchFile {
 public:
  explicit ScratchFile(const std::filesystem::path& directory);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  void write(uint64_t offset, std::span<const std::byte> data);
  // What has been written there.
  void read(uint64_t offset, std::span<std::byte> data) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

// For tests: asked before every write of these; true makes it fail as on a full disk. Null: never.
using WriteFault = bool (*)();
void set_write_fault(WriteFault fault);

// The whole of `text` as `path`, atomically.
void write_file(const std::filesystem::path& path, std::string_view text);
// The whole file; Error(kIo) if it cannot be read, Error(kModel) if it is larger than `max_bytes` or a Git LFS pointer.
std::string read_file(const std::filesystem::path& path, uint64_t max_bytes = uint64_t{1} << 30);
void fsync_directory(const std::filesystem::path& directory);
// Bytes free for us on the file system that holds `path` (or its nearest existing parent).
uint64_t free_space(const std::filesystem::path& path);

}  // namespace bw::io
