#include "pipeline/stage_clock.h"

#include <algorithm>

namespace bw {
namespace {

// change(x, y) for every number x of `to` and y of `other`.
template <typename Change>
StageTime& for_numbers(StageTime& to, const StageTime& other, const Change& change) {
  change(to.seconds, other.seconds);
  change(to.product_seconds, other.product_seconds);
  change(to.product_flops, other.product_flops);
  change(to.launches, other.launches);
  change(to.uploads, other.uploads);
  change(to.upload_bytes, other.upload_bytes);
  change(to.downloads, other.downloads);
  change(to.download_bytes, other.download_bytes);
  change(to.waits, other.waits);
  change(to.wait_seconds, other.wait_seconds);
  return to;
}

}  // namespace

StageTime& StageTime::operator+=(const StageTime& other) {
  return for_numbers(*this, other, [](auto& x, auto y) { x += y; });
}

StageTime& StageTime::operator-=(const StageTime& other) {
  return for_numbers(*this, other, [](auto& x, auto y) { x -= y; });
}

}  // namespace bw

namespace bw::pipeline {

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// now - before
StageTime difference(const backend::Counters& now, const backend::Counters& before) {
  StageTime t;
  t.product_seconds = now.linear_seconds - before.linear_seconds;
  t.product_flops = now.linear_flops - before.linear_flops;
  t.launches = now.launches - before.launches;
  t.uploads = now.uploads - before.uploads;
  t.upload_bytes = now.upload_bytes - before.upload_bytes;
  t.downloads = now.downloads - before.downloads;
  t.download_bytes = now.download_bytes - before.download_bytes;
  t.waits = now.waits - before.waits;
  t.wait_seconds = now.wait_seconds - before.wait_seconds;
  return t;
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
  StageTime taken = difference(clock_.device_.counters(), counters_);
  taken.seconds = seconds_since(begin_);
  if (outer_) outer_->inner_ += taken;
  clock_.current_ = outer_;

  auto at =
      std::find_if(clock_.times_.begin(), clock_.times_.end(), [&](const StageTime& t) { return t.stage == stage_; });
  if (at == clock_.times_.end()) {
    at = clock_.times_.insert(at, StageTime{});
    at->stage = stage_;
  }
  *at += taken;
  *at -= inner_;
}

std::vector<StageTime> StageClock::times() const {
  StageTime rest = difference(device_.counters(), {});
  rest.stage = "all else";
  rest.seconds = seconds_since(start_);
  for (const StageTime& t : times_) rest -= t;
  std::vector<StageTime> all = times_;
  all.push_back(std::move(rest));
  return all;
}

}  // namespace bw::pipeline
