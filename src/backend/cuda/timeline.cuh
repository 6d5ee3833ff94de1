// Spans of time on the device, for traces.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include "backend/cuda/device.cuh"
#include "backend/trace.h"

namespace bw::backend::BW_CUDA_NAMESPACE {

// Takes the times of work in the device's streams and gives them to a trace once they are known.
class Timeline {
 public:
  explicit Timeline(Device& device);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Around the work that is enqueued in `queue` between them. `span`: without times.
  void begin(Queue queue, Span span);
  void end(Queue queue);
  // Moves what has ended to `trace`, with times by its clock.
  void collect(Trace& trace);

 private:
  struct Pending {
    Span span;
    cudaEvent_t begin, end;
    bool ended;  // false: its work is being enqueued
  };
  double ns_since_anchor(cudaEvent_t event) const;

  Device& device_;
  std::deque<Pending> pending_[kQueues];  // in the order in which they end
  // An event and its time by the host's clock. It moves along: differences of events are floats.
  cudaEvent_t anchor_;
  std::chrono::steady_clock::time_point anchor_time_;
};

}  // namespace bw::backend::BW_CUDA_NAMESPACE
