// Read-only memory mapping of a whole file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace bw::io {

// Throws Error(kIo) if `path` is a link to something that does not exist (a cache whose blob is gone).
void check_link(const std::filesystem::path& path);

// Throws Error(kModel) if the file begins as a Git LFS pointer does: what a clone holds in place of a large file until
// that is fetched.
void refuse_lfs_pointer(std::string_view begin, const std::filesystem::path& path);

// Move-only; unmapped on destruction. An empty file maps to an empty span.
class FileMap {
 public:
  FileMap() = default;
  // Throws Error(kIo) naming the path. Follows links (the hub's cache is made of them); a dangling one is named as
  // such. Error(kModel) for a Git LFS pointer.
  explicit FileMap(const std::filesystem::path& path);
  ~FileMap();
  FileMap(FileMap&& other) noexcept;
  FileMap& operator=(FileMap&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  // Hints to the kernel: the range will be read soon / is not needed any more. Never fails.
  void will_need(size_t offset, size_t size) const noexcept;
  void dont_need(size_t offset, size_t size) const noexcept;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace bw::io
