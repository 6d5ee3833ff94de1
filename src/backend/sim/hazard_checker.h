// Finds work that uses memory before other queues are done with it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "backend/ops.h"
#include "backend/sim/event_log.h"
#include "backend/tensor.h"

namespace bw::backend::sim {

// Who used a piece of memory last, in each queue.
struct History {
  struct Use {
    uint64_t sequence = 0;  // 0: none
    std::string_view name;
  };
  std::array<Use, kQueues> reads, writes;
};

// Follows by vector clocks what is known to have run, from records and waits alone: not from the clocks with which
// Backend decides where to wait, since those are what is checked.
class HazardChecker {
 public:
  // The next operation or copy of `queue`, which uses what is given to `use` after this.
  void begin(Queue queue, std::string_view name);
  // Throws Error(kInternal) if no event orders this use after those of other queues that it depends on.
  void use(History& memory, Access access);

  void record(const Event& event) { events_.record(event, known_[index_of(event.queue)]); }
  void wait(Queue queue, const Event& event);
  void await(const Event& event);

  // How much of each queue the host knows to have run.
  const Clock& known_to_host() const { return host_; }

 private:
  void check(const std::array<History::Use, kQueues>& others, std::string_view verb, std::string_view other_verb) const;

  std::array<Clock, kQueues> known_{};  // to each queue; of itself: how much was enqueued
  Clock host_{};
  EventLog<Clock> events_;
  Queue queue_ = Queue::kCompute;  // of the work that has begun
  std::string_view name_;
};

}  // namespace bw::backend::sim
