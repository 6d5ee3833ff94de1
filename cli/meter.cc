#include "meter.h"

#include <algorithm>

namespace bw::cli {
namespace {

constexpr size_t kMostSamples = 512;

}  // namespace

void Meter::update(double done, double total, double now) {
  total_ = total;
  if (!samples_.empty() && done <= samples_.back().done) return;
  samples_.push_back({now, done});
  if (samples_.size() > kMostSamples) thin_out();
}

void Meter::thin_out() {
  std::deque<Sample> kept;
  for (size_t i = 0; i < samples_.size(); ++i) {
    if (i % 2 == 0 || i + 2 >= samples_.size()) kept.push_back(samples_[i]);
  }
  samples_ = std::move(kept);
}

double Meter::step() const {
  return samples_.size() < 2 ? 0 : samples_.back().done - samples_[samples_.size() - 2].done;
}

double Meter::rate(double now) const {
  if (samples_.size() < 2) return 0;
  const Sample &first = samples_.front(), &last = samples_.back();
  const double half = first.at + (last.at - first.at) / 2;
  auto from = std::upper_bound(samples_.begin(), samples_.end(), half,
                               [](double at, const Sample& sample) { return at < sample.at; });
  --from;  // the first is not after half
  if (from->done >= last.done) from = samples_.begin();
  const double seconds = last.at - from->at, work = last.done - from->done;
  if (seconds <= 0) return 0;
  return std::min(work / seconds, (work + step()) / (now - from->at));
}

std::optional<double> Meter::eta(double now) const {
  if (finished()) return 0.0;
  const double r = rate(now);
  if (r <= 0) return std::nullopt;
  const double left = total_ - done();
  return std::max({0.0, left / r - (now - samples_.back().at), (left - step()) / r});
}

}  // namespace bw::cli
