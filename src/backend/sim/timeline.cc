#include "backend/sim/timeline.h"

#include <algorithm>
#include <cmath>

namespace bw::backend::sim {
namespace {

constexpr double kSecond = 1e9;

// Whole nanoseconds, so that sums do not depend on their order.
int64_t whole(double ns) { return std::llround(ns); }

}  // namespace

void Timeline::run(Queue queue, double duration_ns) {
  host_ns_ += whole(model_.host_enqueue_ns);
  const int64_t duration = whole(duration_ns);
  clocks_ns_[index_of(queue)] = std::max(clocks_ns_[index_of(queue)], host_ns_) + duration;
  busy_ns_[index_of(queue)] += duration;
}

void Timeline::operation(double flops, uint64_t bytes) {
  const double work = flops > 0 ? flops / model_.flops_per_s : static_cast<double>(bytes) / model_.bytes_per_s;
  run(Queue::kCompute, model_.launch_ns + kSecond * work);
}

void Timeline::copy(Queue queue, uint64_t bytes, uint64_t staged_bytes) {
  host_ns_ += whole(kSecond * static_cast<double>(staged_bytes) / model_.host_bytes_per_s);
  run(queue, model_.copy_latency_ns + kSecond * static_cast<double>(bytes) / model_.copy_bytes_per_s);
}

void Timeline::wait(Queue queue, const Event& event) {
  clocks_ns_[index_of(queue)] = std::max(clocks_ns_[index_of(queue)], events_.at(event));
}

void Timeline::await(const Event& event) {
  const int64_t waited = std::max<int64_t>(0, events_.at(event) - host_ns_);
  host_ns_ += waited;
  waited_ns_ += waited;
}

SimTimeline Timeline::now() const {
  return {host_ns_, waited_ns_, busy_ns_, std::max(host_ns_, *std::max_element(clocks_ns_.begin(), clocks_ns_.end()))};
}

}  // namespace bw::backend::sim
