#include "backend/sim/two_sided.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/check.h"

namespace bw::backend::sim {
namespace {

constexpr size_t kAlignment = 64;

size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// A file in memory without a name, so that the same pages can be mapped twice.
class PageFile {
 public:
  explicit PageFile(size_t size) : fd_(memfd_create("bitwright sim", MFD_CLOEXEC)) {
    if (fd_ < 0) throw std::bad_alloc();
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0) {
      close(fd_);
      throw std::bad_alloc();
    }
  }
  ~PageFile() { close(fd_); }
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;
  bool map(std::byte* at, size_t size, int protection) const {
    return mmap(at, size, protection, MAP_SHARED | MAP_FIXED, fd_, 0) != MAP_FAILED;
  }

 private:
  int fd_;
};

}  // namespace

TwoSided::TwoSided(size_t bytes, HostSide side) : bytes_(bytes), page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
  if (bytes > size_t{1} << 46) throw std::bad_alloc();
  size_ = round_up(std::max<size_t>(bytes, 1), page_);
  offset_ = size_ - round_up(bytes, kAlignment);  // the end lies at the guard page
  const PageFile file(size_);
  const size_t reserved = 2 * (size_ + page_);
  void* base = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(base);
  const int host_protection = side == HostSide::kOpen ? PROT_READ | PROT_WRITE : PROT_NONE;
  if (!file.map(base_, size_, host_protection) || !file.map(base_ + size_ + page_, size_, PROT_READ | PROT_WRITE)) {
    munmap(base, reserved);
    throw std::bad_alloc();
  }
  std::memset(base_ + size_ + page_, kPoison, size_);
}

TwoSided::~TwoSided() { munmap(base_, 2 * (size_ + page_)); }

void TwoSided::open_host_side() { BW_CHECK(mprotect(base_, size_, PROT_READ | PROT_WRITE) == 0); }

void TwoSided::close_host_side() { BW_CHECK(mprotect(base_, size_, PROT_NONE) == 0); }

}  // namespace bw::backend::sim
