#include "backend/cpu/memory.h"

#include <sys/mman.h>

namespace bw::backend::cpu {
namespace {

// Smaller blocks cost no pages of their own.
constexpr size_t kSmallest = size_t{1} << 17;
// Most that may lie idle.
constexpr size_t kMostFree = size_t{256} << 20;

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

class BlockCache::Block final : public Memory {
 public:
  Block(std::shared_ptr<BlockCache> home, Buffer buffer) : home_(std::move(home)), buffer_(std::move(buffer)) {}
  ~Block() override { home_->give_back(std::move(buffer_)); }
  void* pointer() override { return buffer_.data(); }
  size_t bytes() const override { return buffer_.size(); }

 private:
  std::shared_ptr<BlockCache> home_;
  Buffer buffer_;
};

std::shared_ptr<Memory> BlockCache::take(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->size() < bytes || it->size() > bytes + bytes / 4) continue;  // a block too large would be wasted on it
      Buffer buffer = std::move(*it);
      free_.erase(it);
      free_bytes_ -= buffer.size();
      return std::make_shared<Block>(shared_from_this(), std::move(buffer));
    }
  }
  Buffer buffer(bytes);
  if (bytes >= 2 * kHugePage) {
    const auto begin = (reinterpret_cast<uintptr_t>(buffer.data()) + kHugePage - 1) / kHugePage * kHugePage;
    const auto end = (reinterpret_cast<uintptr_t>(buffer.data()) + bytes) / kHugePage * kHugePage;
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // a hint: failing costs only speed
  }
  return std::make_shared<Block>(shared_from_this(), std::move(buffer));
}

void BlockCache::give_back(Buffer buffer) noexcept {
  const size_t size = buffer.size();
  if (size < kSmallest || size > kMostFree) return;
  const std::lock_guard lock(mutex_);
  while (free_bytes_ + size > kMostFree) {
    free_bytes_ -= free_.back().size();
    free_.pop_back();
  }
  try {
    free_.push_front(std::move(buffer));
    free_bytes_ += size;
  } catch (const std::bad_alloc&) {
    // No room to remember it: it is freed.
  }
}

}  // namespace bw::backend::cpu
