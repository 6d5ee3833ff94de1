// Where the time of a run went, by stage: wall seconds, and what the stage asked of the device.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "bitwright/options.h"

namespace bw::pipeline {

class StageClock {
 public:
  explicit StageClock(const backend::Backend& device) : device_(device) {}

  // Counts the time of its own life for `stage`; stages of the same name add up. What a span inside
  // it counts is not counted for it.
  class Span {
   public:
    Span(StageClock& clock, std::string stage);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    StageClock& clock_;
    std::string stage_;
    Span* outer_;
    StageTime inner_;  // of spans inside
    backend::Counters counters_;
    std::chrono::steady_clock::time_point begin_;
    int64_t trace_begin_ns_;
  };

  // In the order in which the stages were first met; the last is what belongs to none of them. They add up to the time
  // since the clock was made.
  std::vector<StageTime> times() const;

 private:
  const backend::Backend& device_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Span* current_ = nullptr;
  std::vector<StageTime> times_;
};

}  // namespace bw::pipeline
