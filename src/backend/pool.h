// Device memory that is given out again before the device is done with its last use.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "backend/tensor.h"

namespace bw::backend {

// Queues run in order, so memory that the host has let go of can be reused at once by what is enqueued afterwards: the
// host need not wait, and running ahead of the device costs little memory. Blocks that uploads fill are kept apart from
// those of operations: they may be filled again when the operations before the end of their last use have run.
//
// Not thread-safe: handles go on the thread that enqueues.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  // `mark` gives the event behind all operations enqueued so far.
  explicit MemoryPool(std::function<Event()> mark) : mark_(std::move(mark)) {}

  struct Block {
    std::shared_ptr<Memory> memory;
    Event freed;  // the end of its last use by operations; for Queue::kUpload only
  };
  // A block of at least `bytes` and not much more that was lent for the same queue and that `wanted` accepts; the one
  // that has been free for longest. Empty if there is none.
  Block take(size_t bytes, Queue queue, const std::function<bool(const Block&)>& wanted);
  // A handle that brings the memory back when its last copy goes.
  std::shared_ptr<Memory> lend(std::shared_ptr<Memory> memory, Queue queue);
  // Lets go of all that is not lent.
  void trim() { free_[0].clear(), free_[1].clear(); }

 private:
  using Blocks = std::multimap<size_t, Block>;  // by size
  Blocks& blocks_of(Queue queue) { return free_[queue == Queue::kUpload ? 1 : 0]; }
  void give_back(std::shared_ptr<Memory> memory, Queue queue) noexcept;

  std::function<Event()> mark_;
  Blocks free_[2];
};

}  // namespace bw::backend
