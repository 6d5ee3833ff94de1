#include "backend/cuda/timeline.cuh"

#include <utility>

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

using Nanoseconds = std::chrono::nanoseconds;

constexpr double kMovesAfterNs = 1e9;  // then a float still tells 60 ns apart

size_t at(Queue queue) { return static_cast<size_t>(queue); }

}  // namespace

Timeline::Timeline(Device& device) : device_(device), anchor_(device.timed_events().take()) {
  BW_CUDA_CALL(cudaEventRecord, anchor_, device_.stream(Queue::kCompute));
  BW_CUDA_CALL(cudaEventSynchronize, anchor_);
  anchor_time_ = std::chrono::steady_clock::now();
}

Timeline::~Timeline() {
  for (const auto& queue : pending_) {
    for (const Pending& p : queue) {
      device_.timed_events().give_back(p.begin);
      device_.timed_events().give_back(p.end);
    }
  }
  device_.timed_events().give_back(anchor_);
}

void Timeline::begin(Queue queue, Span span) {
  const cudaEvent_t begin = device_.timed_events().take(), end = device_.timed_events().take();
  pending_[at(queue)].push_back({std::move(span), begin, end, false});
  BW_CUDA_CALL(cudaEventRecord, begin, device_.stream(queue));
}

void Timeline::end(Queue queue) {
  Pending& last = pending_[at(queue)].back();
  BW_CUDA_CALL(cudaEventRecord, last.end, device_.stream(queue));
  last.ended = true;
}

double Timeline::ns_since_anchor(cudaEvent_t event) const {
  float ms = 0;
  BW_CUDA_CALL(cudaEventElapsedTime, &ms, anchor_, event);
  return double{ms} * 1e6;
}

void Timeline::collect(Trace& trace) {
  for (auto& queue : pending_) {
    while (!queue.empty() && queue.front().ended) {
      Pending& p = queue.front();
      const cudaError_t status = cudaEventQuery(p.end);
      if (status == cudaErrorNotReady) break;
      check(status, "cudaEventQuery");
      const Nanoseconds to_anchor = std::chrono::steady_clock::now() - anchor_time_;
      const int64_t anchor_ns = trace.now() - to_anchor.count();
      const double end_ns = ns_since_anchor(p.end);
      p.span.begin_ns = anchor_ns + static_cast<int64_t>(ns_since_anchor(p.begin));
      p.span.end_ns = anchor_ns + static_cast<int64_t>(end_ns);
      trace.add(std::move(p.span));
      if (end_ns > kMovesAfterNs) {
        anchor_time_ += Nanoseconds(static_cast<int64_t>(end_ns));
        std::swap(anchor_, p.end);
      }
      device_.timed_events().give_back(p.begin);
      device_.timed_events().give_back(p.end);
      queue.pop_front();
    }
  }
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
