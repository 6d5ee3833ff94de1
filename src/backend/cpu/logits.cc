// Log-probabilities of rows of logits. Sums over the vocabulary run in float within short blocks and in double over
// them.
#include <algorithm>
#include <cmath>

#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/logits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bw::backend::cpu::HWY_NAMESPACE {

constexpr size_t kBlock = 512;

// exp(x - maximum); NaN where that is no number (hn::Exp gives 0 there).
HWY_INLINE FloatVec exp_below(FloatVec x, FloatVec maximum) {
  const FloatVec below = hn::Sub(x, maximum);
  return hn::IfThenElse(hn::IsNaN(below), below, hn::Exp(FloatTag(), below));
}

// log Σ exp(x), given the largest x.
double log_sum_exp(const float* x, size_t n, float maximum) {
  const FloatTag d;
  const size_t step = hn::Lanes(d);
  const FloatVec top = hn::Set(d, maximum);
  double total = 0.0;
  for (size_t first = 0; first < n; first += kBlock) {
    const size_t end = std::min(n, first + kBlock);
    FloatVec sum = hn::Zero(d);
    size_t i = first;
    for (; i + step <= end; i += step) sum = hn::Add(sum, exp_below(hn::LoadU(d, x + i), top));
    total += hn::GetLane(hn::SumOfLanes(d, sum));
    for (; i < end; ++i) total += std::exp(x[i] - maximum);
  }
  return maximum + std::log(total);
}

// Σ exp(p - max p) · (p - q - shift), over the tokens that p gives a chance. The shift keeps the terms small, so that
// little is lost in their sum.
double weighted_difference(const float* p, const float* q, size_t n, float maximum, float shift) {
  const FloatTag d;
  const size_t step = hn::Lanes(d);
  const FloatVec top = hn::Set(d, maximum), offset = hn::Set(d, shift);
  double total = 0.0;
  for (size_t first = 0; first < n; first += kBlock) {
    const size_t end = std::min(n, first + kBlock);
    FloatVec sum = hn::Zero(d);
    size_t i = first;
    for (; i + step <= end; i += step) {
      const FloatVec a = hn::LoadU(d, p + i), b = hn::LoadU(d, q + i);
      const FloatVec weight = exp_below(a, top);
      const FloatVec term = hn::Mul(weight, hn::Sub(hn::Sub(a, b), offset));
      sum = hn::Add(sum, hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), term));  // else -inf would be lost in NaN
    }
    total += hn::GetLane(hn::SumOfLanes(d, sum));
    for (; i < end; ++i) {
      const float weight = std::exp(p[i] - maximum);
      if (weight != 0) total += weight * (p[i] - q[i] - shift);
    }
  }
  return total;
}

float nll_of(const float* logits, size_t n, size_t target) {
  return static_cast<float>(log_sum_exp(logits, n, largest(logits, n)) - logits[target]);
}

// out: KLD(p ‖ q), nll under p, nll under q, 1 if the largest logits are at one place.
void compare(const float* p, const float* q, size_t n, size_t target, float* out) {
  const float p_max = largest(p, n), q_max = largest(q, n);
  const double p_log = log_sum_exp(p, n, p_max), q_log = log_sum_exp(q, n, q_max);
  const float shift = static_cast<float>(p_log - q_log);
  const double mean = weighted_difference(p, q, n, p_max, shift) / std::exp(p_log - p_max);
  const double kld = mean + shift - (p_log - q_log);
  out[0] = static_cast<float>(kld < 0 ? 0 : kld);  // rounding may lead below 0; NaN stays
  out[1] = static_cast<float>(p_log - p[target]);
  out[2] = static_cast<float>(q_log - q[target]);
  out[3] = std::find(p, p + n, p_max) - p == std::find(q, q + n, q_max) - q ? 1.0f : 0.0f;
}

}  // namespace bw::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bw::backend::cpu {

HWY_EXPORT(nll_of);
HWY_EXPORT(compare);

namespace {

size_t checked_target(ConstIndexView targets, size_t row, size_t vocabulary) {
  const int32_t target = targets(row, 0);
  BW_CHECK(target >= 0 && static_cast<size_t>(target) < vocabulary);
  return static_cast<size_t>(target);
}

}  // namespace

void token_nll(ThreadPool& pool, ConstView logits, ConstIndexView targets, View nll) {
  parallel_rows(pool, logits.rows, logits.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) {
      const size_t target = checked_target(targets, r, logits.cols);
      nll(r, 0) = HWY_DYNAMIC_DISPATCH(nll_of)(logits.row(r), logits.cols, target);
    }
  });
}

void compare_logits(ThreadPool& pool, ConstView p, ConstView q, ConstIndexView targets, View out) {
  parallel_rows(pool, p.rows, p.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) {
      HWY_DYNAMIC_DISPATCH(compare)(p.row(r), q.row(r), p.cols, checked_target(targets, r, p.cols), out.row(r));
    }
  });
}

}  // namespace bw::backend::cpu
#endif  // HWY_ONCE
