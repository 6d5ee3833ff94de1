// A clock of a device that is not there: what a run would take with given speeds, independent of the time it takes.
#pragma once

#include <array>
#include <cstdint>

#include "backend/sim/event_log.h"
#include "backend/tensor.h"

namespace bw::backend::sim {

// The defaults are those of a fast card on PCIe 4 x16.
struct SimModel {
  double launch_ns = 5e3;          // of each operation
  double flops_per_s = 100e12;     // of matrix products
  double bytes_per_s = 1.5e12;     // of the operands of all other operations
  double copy_latency_ns = 10e3;   // of each copy
  double copy_bytes_per_s = 25e9;  // in each direction
  double host_enqueue_ns = 2e3;    // of the host, for each operation and copy
  double host_bytes_per_s = 10e9;  // at which the host makes what it uploads
};

// In nanoseconds of the model.
struct SimTimeline {
  int64_t host_ns = 0;    // the host's clock
  int64_t waited_ns = 0;  // part of it in which the host waited for the device
  std::array<int64_t, kQueues> busy_ns{};
  int64_t end_ns = 0;  // when the host and all queues are done with what is enqueued so far
};

class Timeline {
 public:
  explicit Timeline(const SimModel& model) : model_(model) {}

  // An operation of so many flops, or, where it is no product, of so many bytes of operands.
  void operation(double flops, uint64_t bytes);
  // `staged_bytes`: those of it that the host had to make.
  void copy(Queue queue, uint64_t bytes, uint64_t staged_bytes);

  void record(const Event& event) { events_.record(event, clocks_ns_[index_of(event.queue)]); }
  void wait(Queue queue, const Event& event);
  void await(const Event& event);

  SimTimeline now() const;

 private:
  void run(Queue queue, double duration_ns);

  SimModel model_;
  int64_t host_ns_ = 0, waited_ns_ = 0;
  std::array<int64_t, kQueues> clocks_ns_{}, busy_ns_{};
  EventLog<int64_t> events_;
};

}  // namespace bw::backend::sim
