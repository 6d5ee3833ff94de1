// The parts of the test device by themselves.
#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/sim/hazard_checker.h"
#include "backend/sim/queues.h"
#include "bitwright/error.h"

namespace bw::backend::sim {
namespace {

TEST(HazardChecker, UsesOfOneQueueAndReadsOfAllNeedNoEvent) {
  HazardChecker checker;
  History a, b;
  for (int i = 0; i < 2; ++i) {
    checker.begin(Queue::kCompute, "op");
    checker.use(a, Access::kRead);
    checker.use(a, Access::kWrite);
    checker.use(b, Access::kRead);
    checker.begin(Queue::kUpload, "upload");
    checker.use(b, Access::kRead);
  }
  EXPECT_THROW(checker.use(b, Access::kWrite), Error);
}

TEST(HazardChecker, EventsOrderWhatCameBeforeThemOnly) {
  HazardChecker checker;
  History a, b;
  const Event early{Queue::kUpload, 3, {}}, late{Queue::kUpload, 7, {}};
  const auto upload = [&](History& memory, const Event& event) {
    checker.begin(Queue::kUpload, "upload");
    checker.use(memory, Access::kWrite);
    checker.record(event);
  };
  upload(a, early);
  upload(b, late);
  checker.wait(Queue::kCompute, early);
  checker.begin(Queue::kCompute, "op");
  checker.use(a, Access::kRead);
  EXPECT_THROW(checker.use(b, Access::kRead), Error);
  checker.wait(Queue::kCompute, late);
  checker.use(b, Access::kRead);
  EXPECT_THROW(checker.wait(Queue::kCompute, Event{Queue::kUpload, 8, {}}), Error);  // never recorded
}

TEST(HazardChecker, WaitsArePassedOnThroughQueuesAndTheHost) {
  HazardChecker checker;
  History memory;
  const Event uploaded{Queue::kUpload, 1, {}}, computed{Queue::kCompute, 1, {}};
  checker.begin(Queue::kUpload, "upload");
  checker.use(memory, Access::kWrite);
  checker.record(uploaded);
  checker.wait(Queue::kCompute, uploaded);
  checker.record(computed);
  checker.begin(Queue::kDownload, "download");
  EXPECT_THROW(checker.use(memory, Access::kRead), Error);
  EXPECT_EQ(checker.known_to_host(), Clock{});
  checker.await(computed);
  EXPECT_EQ(checker.known_to_host(), (Clock{0, 1, 0}));
  EXPECT_THROW(checker.use(memory, Access::kRead), Error);  // it was enqueued before the host knew
  checker.begin(Queue::kDownload, "download");
  checker.use(memory, Access::kRead);
}

TEST(Queues, RunInOrderAndWaitForEachOther) {
  Queues queues;
  std::vector<int> ran(300, -1);
  std::atomic<int> next = 0;
  Event last{};
  for (size_t i = 0; i < ran.size(); ++i) {
    const Queue queue = std::array{Queue::kUpload, Queue::kCompute, Queue::kDownload}[i % kQueues];
    if (i > 0) queues.wait(queue, last);
    queues.enqueue(queue, [&ran, &next, i] { ran[i] = next++; });
    queues.record(last = {queue, i / kQueues + 1, {}});
  }
  queues.await(last);
  for (size_t i = 0; i < ran.size(); ++i) EXPECT_EQ(ran[i], static_cast<int>(i));
}

TEST(Queues, WorkIsLetGoBeforeTheEventAfterItEvenIfItIsSkipped) {
  Queues queues;
  auto held = std::make_shared<int>(0);
  for (uint64_t ticket = 1; ticket <= 3; ++ticket) {
    queues.enqueue(Queue::kUpload, [held] { throw std::runtime_error("first of " + std::to_string(++*held)); });
    queues.record({Queue::kUpload, ticket, {}});
  }
  queues.await({Queue::kUpload, 3, {}});  // its clock says that nothing of the upload queue came before
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 1);
  EXPECT_THROW(queues.await({Queue::kUpload, 1, {0, 1, 0}}), std::runtime_error);
  EXPECT_NO_THROW(queues.await({Queue::kUpload, 3, {0, 3, 0}}));
}

TEST(Queues, EndWithWorkWaitsAndErrorsPending) {
  std::atomic<int> ran = 0;
  for (int round = 0; round < 50; ++round) {
    Queues queues;
    for (uint64_t ticket = 1; ticket <= 20; ++ticket) {
      queues.enqueue(Queue::kUpload, [&] {
        if (++ran % 16 == 0) throw std::runtime_error("pending");
      });
      queues.record({Queue::kUpload, ticket, {}});
      queues.wait(Queue::kCompute, {Queue::kUpload, ticket, {}});
      queues.enqueue(Queue::kCompute, [&] { ++ran; });
    }
  }
  EXPECT_LE(ran, 50 * 40);
}

}  // namespace
}  // namespace bw::backend::sim
