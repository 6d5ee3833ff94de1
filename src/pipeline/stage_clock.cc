#include "pipeline/stage_clock.h"

#include <algorithm>

namespace bw::pipeline {

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// to += now - before
void add(StageTime& to, const backend::Counters& now, const backend::Counters& before) {
  to.product_seconds += now.linear_seconds - before.linear_seconds;
  to.product_flops += now.linear_flops - before.linear_flops;
  to.launches += now.launches - before.launches;
  to.uploads += now.uploads - before.uploads;
  to.upload_bytes += now.upload_bytes - before.upload_bytes;
  to.downloads += now.downloads - before.downloads;
  to.download_bytes += now.download_bytes - before.download_bytes;
  to.waits += now.waits - before.waits;
  to.wait_seconds += now.wait_seconds - before.wait_seconds;
}

}  // namespace

StageClock::Span::Span(StageClock& clock, std::string stage)
    : clock_(clock),
      stage_(std::move(stage)),
      counters_(clock.device_.counters()),
      begin_(std::chrono::steady_clock::now()),
      trace_begin_ns_(clock.device_.trace() ? clock.device_.trace()->now() : 0) {}

StageClock::Span::~Span() {
  if (backend::Trace* trace = clock_.device_.trace()) trace->add({"stages", stage_, trace_begin_ns_, trace->now()});
  auto at =
      std::find_if(clock_.times_.begin(), clock_.times_.end(), [&](const StageTime& t) { return t.stage == stage_; });
  if (at == clock_.times_.end()) {
    at = clock_.times_.insert(at, StageTime{});
    at->stage = stage_;
  }
  at->seconds += seconds_since(begin_);
  add(*at, clock_.device_.counters(), counters_);
}

std::vector<StageTime> StageClock::times() const {
  backend::Counters known;
  double seconds = 0;
  for (const StageTime& t : times_) {
    seconds += t.seconds;
    known.linear_seconds += t.product_seconds;
    known.linear_flops += t.product_flops;
    known.launches += t.launches;
    known.uploads += t.uploads;
    known.upload_bytes += t.upload_bytes;
    known.downloads += t.downloads;
    known.download_bytes += t.download_bytes;
    known.waits += t.waits;
    known.wait_seconds += t.wait_seconds;
  }
  StageTime rest;
  rest.stage = "all else";
  rest.seconds = seconds_since(start_) - seconds;
  add(rest, device_.counters(), known);
  std::vector<StageTime> all = times_;
  all.push_back(std::move(rest));
  return all;
}

}  // namespace bw::pipeline
