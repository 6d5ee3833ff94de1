// Memory of the CPU device.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>

#include "backend/tensor.h"

namespace bw::backend::cpu {

// Hands out blocks of host memory and keeps a few of those given back: the operations of every layer want the same
// sizes, and fresh pages cost as much time as a pass over them. Thread-safe.
class BlockCache : public std::enable_shared_from_this<BlockCache> {
 public:
  // A block of at least `bytes`, which returns to the cache when the last user lets go. Contents undefined.
  std::shared_ptr<Memory> take(size_t bytes);

 private:
  class Block;
  using Buffer = AlignedBuffer<std::byte>;
  void give_back(Buffer buffer) noexcept;

  std::mutex mutex_;
  std::list<Buffer> free_;  // the last given back first
  size_t free_bytes_ = 0;
};

}  // namespace bw::backend::cpu
