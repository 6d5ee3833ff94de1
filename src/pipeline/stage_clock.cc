#include "pipeline/stage_clock.h"

#include <algorithm>

namespace bw::pipeline {

StageClock::Span::Span(StageClock& clock, std::string_view stage)
    : clock_(clock),
      stage_(stage),
      counters_(clock.device_.counters()),
      begin_(std::chrono::steady_clock::now()),
      trace_begin_ns_(clock.device_.trace() ? clock.device_.trace()->now() : 0) {}

StageClock::Span::~Span() {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const backend::Counters& now = clock_.device_.counters();
  if (backend::Trace* trace = clock_.device_.trace()) {
    trace->add({"stages", std::string(stage_), trace_begin_ns_, trace->now()});
  }
  auto at =
      std::find_if(clock_.times_.begin(), clock_.times_.end(), [&](const StageTime& t) { return t.stage == stage_; });
  if (at == clock_.times_.end()) {
    at = clock_.times_.insert(at, StageTime{});
    at->stage = stage_;
  }
  at->seconds += seconds;
  at->product_seconds += now.linear_seconds - counters_.linear_seconds;
  at->product_flops += now.linear_flops - counters_.linear_flops;
  at->launches += now.launches - counters_.launches;
  at->uploads += now.uploads - counters_.uploads;
  at->upload_bytes += now.upload_bytes - counters_.upload_bytes;
  at->downloads += now.downloads - counters_.downloads;
  at->download_bytes += now.download_bytes - counters_.download_bytes;
  at->waits += now.waits - counters_.waits;
  at->wait_seconds += now.wait_seconds - counters_.wait_seconds;
}

}  // namespace bw::pipeline
