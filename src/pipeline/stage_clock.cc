#include "pipeline/stage_clock.h"

#include <algorithm>

namespace bw::pipeline {

StageClock::Span::~Span() {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const backend::Counters& now = clock_.device_.counters();
  auto at =
      std::find_if(clock_.times_.begin(), clock_.times_.end(), [&](const StageTime& t) { return t.stage == stage_; });
  if (at == clock_.times_.end()) at = clock_.times_.insert(at, StageTime{std::string(stage_), 0, 0, 0});
  at->seconds += seconds;
  at->product_seconds += now.linear_seconds - counters_.linear_seconds;
  at->product_flops += now.linear_flops - counters_.linear_flops;
}

}  // namespace bw::pipeline
