#include "backend/pool.h"

namespace bw::backend {

MemoryPool::Block MemoryPool::take(size_t bytes, Queue queue, const std::function<bool(const Block&)>& wanted) {
  Blocks& blocks = blocks_of(queue);
  for (auto at = blocks.lower_bound(bytes); at != blocks.end(); ++at) {
    if (at->first > bytes + bytes / 4) break;  // it would be wasted on something so small
    if (!wanted(at->second)) continue;
    Block block = std::move(at->second);
    blocks.erase(at);
    return block;
  }
  return {};
}

std::shared_ptr<Memory> MemoryPool::lend(std::shared_ptr<Memory> memory, Queue queue) {
  Memory* const address = memory.get();
  return {address, [pool = weak_from_this(), owner = std::move(memory), queue](Memory*) mutable {
            if (const auto home = pool.lock()) home->give_back(std::move(owner), queue);
          }};
}

void MemoryPool::give_back(std::shared_ptr<Memory> memory, Queue queue) noexcept {
  try {
    const Event freed = queue == Queue::kUpload ? mark_() : Event{};
    const size_t bytes = memory->bytes();
    blocks_of(queue).emplace(bytes, Block{std::move(memory), freed});
  } catch (...) {
    // No room to remember it, or the device has failed, which the next wait will tell: the memory is freed.
  }
}

}  // namespace bw::backend
