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

// to += part, or to -= part.
void add(StageTime& to, const StageTime& part, bool negative = false) {
  const auto plus = [negative](auto& x, auto y) { negative ? x -= y : x += y; };
  plus(to.seconds, part.seconds);
  plus(to.product_seconds, part.product_seconds);
  plus(to.product_flops, part.product_flops);
  plus(to.launches, part.launches);
  plus(to.uploads, part.uploads);
  plus(to.upload_bytes, part.upload_bytes);
  plus(to.downloads, part.downloads);
  plus(to.download_bytes, part.download_bytes);
  plus(to.waits, part.waits);
  plus(to.wait_seconds, part.wait_seconds);
}

}  // namespace

StageClock::Span::Span(StageClock& clock, std::string stage)
    : clock_(clock),
      stage_(std::move(stage)),
      outer_(clock.current_),
      counters_(clock.device_.counters()),
      begin_(std::chrono::steady_clock::now()),
      trace_begin_ns_(clock.device_.trace() ? clock.device_.trace()->now() : 0) {
  clock_.current_ = this;
}

StageClock::Span::~Span() {
  if (backend::Trace* trace = clock_.device_.trace()) trace->add({"stages", stage_, trace_begin_ns_, trace->now()});
  StageTime taken;
  taken.seconds = seconds_since(begin_);
  add(taken, clock_.device_.counters(), counters_);
  if (outer_) add(outer_->inner_, taken);
  clock_.current_ = outer_;

  auto at =
      std::find_if(clock_.times_.begin(), clock_.times_.end(), [&](const StageTime& t) { return t.stage == stage_; });
  if (at == clock_.times_.end()) {
    at = clock_.times_.insert(at, StageTime{});
    at->stage = stage_;
  }
  add(*at, taken);
  add(*at, inner_, true);
}

std::vector<StageTime> StageClock::times() const {
  StageTime rest;
  rest.stage = "all else";
  rest.seconds = seconds_since(start_);
  add(rest, device_.counters(), {});
  for (const StageTime& t : times_) add(rest, t, true);
  std::vector<StageTime> all = times_;
  all.push_back(std::move(rest));
  return all;
}

}  // namespace bw::pipeline
