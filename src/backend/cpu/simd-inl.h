// Loops over float arrays in vectors of the current Highway target. Included once for each target.
#if defined(BW_BACKEND_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BW_BACKEND_CPU_SIMD_INL_H_
#undef BW_BACKEND_CPU_SIMD_INL_H_
#else
#define BW_BACKEND_CPU_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstring>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bw::backend::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

// The first n lanes from p, `fill` in the others. Reads nothing past p + n (masked loads of some targets do).
HWY_INLINE FloatVec load_part(FloatTag d, const float* HWY_RESTRICT p, size_t n, float fill = 0.0f) {
  HWY_ALIGN float lanes[hn::MaxLanes(FloatTag())];
  hn::Store(hn::Set(d, fill), d, lanes);
  std::memcpy(lanes, p, n * sizeof(float));
  return hn::Load(d, lanes);
}

HWY_INLINE void store_part(FloatVec v, FloatTag d, float* HWY_RESTRICT p, size_t n) {
  HWY_ALIGN float lanes[hn::MaxLanes(FloatTag())];
  hn::Store(v, d, lanes);
  std::memcpy(p, lanes, n * sizeof(float));
}

// y[i] = f(x[i]); y may be x.
template <typename F>
HWY_INLINE void map(const float* x, float* y, size_t n, const F& f) {
  const FloatTag d;
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= n; i += step) hn::StoreU(f(hn::LoadU(d, x + i)), d, y + i);
  if (i < n) store_part(f(load_part(d, x + i, n - i)), d, y + i, n - i);
}

// y[i] = f(a[i], b[i]); y may be a or b.
template <typename F>
HWY_INLINE void map2(const float* a, const float* b, float* y, size_t n, const F& f) {
  const FloatTag d;
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= n; i += step) hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, y + i);
  if (i < n) store_part(f(load_part(d, a + i, n - i), load_part(d, b + i, n - i)), d, y + i, n - i);
}

// Σ a[i] * b[i], in four running sums (one alone would wait for its own latency).
HWY_INLINE float dot(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t n) {
  const FloatTag d;
  const size_t step = hn::Lanes(d);
  FloatVec s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  size_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    s0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s0);
    s1 = hn::MulAdd(hn::LoadU(d, a + i + step), hn::LoadU(d, b + i + step), s1);
    s2 = hn::MulAdd(hn::LoadU(d, a + i + 2 * step), hn::LoadU(d, b + i + 2 * step), s2);
    s3 = hn::MulAdd(hn::LoadU(d, a + i + 3 * step), hn::LoadU(d, b + i + 3 * step), s3);
  }
  for (; i + step <= n; i += step) s0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s0);
  if (i < n) s1 = hn::MulAdd(load_part(d, a + i, n - i), load_part(d, b + i, n - i), s1);
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// y = factor * x; y may be x.
HWY_INLINE void scale_to(const float* x, float factor, float* y, size_t n) {
  const FloatVec f = hn::Set(FloatTag(), factor);
  map(x, y, n, [f](FloatVec v) HWY_ATTR { return hn::Mul(v, f); });
}

// The largest of n > 0 values.
HWY_INLINE float largest(const float* x, size_t n) {
  const FloatTag d;
  const size_t step = hn::Lanes(d);
  FloatVec m = hn::Set(d, x[0]);
  size_t i = 0;
  for (; i + step <= n; i += step) m = hn::Max(m, hn::LoadU(d, x + i));
  if (i < n) m = hn::Max(m, load_part(d, x + i, n - i, x[0]));
  return hn::GetLane(hn::MaxOfLanes(d, m));
}

// x[i] = exp(x[i] - maximum), for a maximum that no x[i] exceeds; returns the sum. Below exp(-87) results would be
// subnormal, and slow; against the largest one, 1, they are nothing: they become 0.
HWY_INLINE float softmax_weights(float* x, size_t n, float maximum) {
  const FloatTag d;
  const size_t step = hn::Lanes(d);
  const FloatVec top = hn::Set(d, maximum), least = hn::Set(d, -87.0f);
  const auto weigh = [=](FloatVec v) HWY_ATTR {
    const FloatVec relative = hn::Sub(v, top);
    return hn::IfThenElseZero(hn::Ge(relative, least), hn::Exp(FloatTag(), relative));
  };
  FloatVec sum = hn::Zero(d);
  size_t i = 0;
  for (; i + step <= n; i += step) {
    const FloatVec w = weigh(hn::LoadU(d, x + i));
    hn::StoreU(w, d, x + i);
    sum = hn::Add(sum, w);
  }
  if (i < n) {
    const FloatVec w = weigh(load_part(d, x + i, n - i, -std::numeric_limits<float>::infinity()));
    store_part(w, d, x + i, n - i);
    sum = hn::Add(sum, w);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace bw::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
