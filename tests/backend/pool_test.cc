#include "backend/pool.h"

#include <gtest/gtest.h>

namespace bw::backend {
namespace {

class Plain final : public Memory {
 public:
  explicit Plain(size_t bytes) : bytes_(bytes) {}
  void* pointer() override { return nullptr; }
  size_t bytes() const override { return bytes_; }

 private:
  size_t bytes_;
};

const auto kAny = [](const MemoryPool::Block&) { return true; };

struct Fixture {
  std::shared_ptr<MemoryPool> pool = std::make_shared<MemoryPool>([this] {
    return Event{Queue::kCompute, ++marks, {marks, 0, 0}};
  });
  uint64_t marks = 0;
};

TEST(MemoryPool, GivesOutAgainWhatTheLastHandleHasLeft) {
  Fixture f;
  const auto memory = std::make_shared<Plain>(100);
  auto handle = f.pool->lend(memory, Queue::kCompute);
  EXPECT_EQ(handle.get(), memory.get());
  const auto second = handle;
  handle = nullptr;
  EXPECT_EQ(f.pool->take(100, Queue::kCompute, kAny).memory, nullptr);  // one handle is left
  EXPECT_EQ(second.use_count(), 1);
}

TEST(MemoryPool, TakesOnlyWhatFitsWellAndWasLentForTheSameQueue) {
  Fixture f;
  for (const size_t bytes : {100u, 200u}) f.pool->lend(std::make_shared<Plain>(bytes), Queue::kCompute);
  EXPECT_EQ(f.pool->take(201, Queue::kCompute, kAny).memory, nullptr);
  EXPECT_EQ(f.pool->take(120, Queue::kCompute, kAny).memory, nullptr);  // 200 would be wasted on it
  EXPECT_EQ(f.pool->take(100, Queue::kUpload, kAny).memory, nullptr);
  EXPECT_EQ(f.pool->take(170, Queue::kCompute, kAny).memory->bytes(), 200u);
  EXPECT_EQ(f.pool->take(170, Queue::kCompute, kAny).memory, nullptr);  // it is gone
  EXPECT_EQ(f.pool->take(90, Queue::kCompute, kAny).memory->bytes(), 100u);
}

TEST(MemoryPool, RemembersTheEndOfTheLastUseOfWhatUploadsFill) {
  Fixture f;
  f.pool->lend(std::make_shared<Plain>(8), Queue::kCompute);
  EXPECT_EQ(f.marks, 0u);
  f.pool->lend(std::make_shared<Plain>(8), Queue::kUpload);
  EXPECT_EQ(f.marks, 1u);
  EXPECT_EQ(f.pool->take(8, Queue::kUpload, kAny).freed.ticket, 1u);
}

TEST(MemoryPool, SkipsWhatIsNotWanted) {
  Fixture f;
  f.pool->lend(std::make_shared<Plain>(8), Queue::kUpload);
  f.pool->lend(std::make_shared<Plain>(8), Queue::kUpload);
  const auto block = f.pool->take(8, Queue::kUpload, [](const MemoryPool::Block& b) { return b.freed.ticket == 2; });
  EXPECT_EQ(block.freed.ticket, 2u);
}

TEST(MemoryPool, LetsGoOfMemoryWhenTrimmedOrGone) {
  Fixture f;
  auto memory = std::make_shared<Plain>(8);
  const std::weak_ptr<Memory> watch = memory;
  f.pool->lend(std::move(memory), Queue::kCompute);
  EXPECT_FALSE(watch.expired());
  f.pool->trim();
  EXPECT_TRUE(watch.expired());

  auto longer = f.pool->lend(std::make_shared<Plain>(8), Queue::kCompute);
  f.pool = nullptr;
  longer = nullptr;  // no crash
}

}  // namespace
}  // namespace bw::backend
