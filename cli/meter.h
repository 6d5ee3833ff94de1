// How fast a stage works and when it will be done, from what it has done so far.
#pragma once

#include <deque>
#include <optional>

namespace bw::cli {

// All times are seconds of one clock that never goes back.
class Meter {
 public:
  // The stage has done so much of its work at this time. What it had done at its first update costs it no time (it goes
  // on from an earlier run).
  void update(double done, double total, double now);

  // Work a second; 0: nothing is known yet. The first half of the time so far does not count, so that a slow beginning
  // is forgotten; a step that takes longer than those before it slows the rate while it lasts.
  double rate(double now) const;
  // Seconds until all is done, as long as the work that is left takes at that rate.
  std::optional<double> eta(double now) const;
  double elapsed(double now) const { return samples_.empty() ? 0 : now - samples_.front().at; }
  double done() const { return samples_.empty() ? 0 : samples_.back().done; }
  double total() const { return total_; }
  bool finished() const { return !samples_.empty() && done() >= total_; }

 private:
  struct Sample {
    double at, done;
  };
  void thin_out();
  // What the last update brought.
  double step() const;

  std::deque<Sample> samples_;  // times and work ascend; the first stays
  double total_ = 0;
};

}  // namespace bw::cli
