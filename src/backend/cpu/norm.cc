// Norms and products of rows.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bw::backend::cpu::HWY_NAMESPACE {

void rms_norm_run(const float* x, const float* weight, size_t n, float eps, float* y) {
  const float mean = dot(x, x, n) / static_cast<float>(n);
  const FloatVec factor = hn::Set(FloatTag(), 1.0f / std::sqrt(mean + eps));
  map2(x, weight, y, n, [factor](FloatVec v, FloatVec w) HWY_ATTR { return hn::Mul(hn::Mul(v, factor), w); });
}

float squared_norm(const float* x, const float*, size_t n) { return dot(x, x, n); }

float dot_of_rows(const float* x, const float* y, size_t n) { return dot(x, y, n); }

float squared_distance(const float* x, const float* y, size_t n) {
  const FloatTag d;
  const size_t step = hn::Lanes(d);
  FloatVec sum = hn::Zero(d);
  size_t i = 0;
  for (; i + step <= n; i += step) {
    const FloatVec difference = hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, y + i));
    sum = hn::MulAdd(difference, difference, sum);
  }
  if (i < n) {
    const FloatVec difference = hn::Sub(load_part(d, x + i, n - i), load_part(d, y + i, n - i));
    sum = hn::MulAdd(difference, difference, sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// The bits of the largest |x[i]|. Without their signs, the bits of floats are in the order of their values, and those
// of NaN above all others.
int32_t largest_bits(const float* x, size_t n) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> as_bits;
  const size_t step = hn::Lanes(d);
  auto most = hn::Zero(as_bits);
  size_t i = 0;
  for (; i + step <= n; i += step) most = hn::Max(most, hn::BitCast(as_bits, hn::Abs(hn::LoadU(d, x + i))));
  if (i < n) most = hn::Max(most, hn::BitCast(as_bits, hn::Abs(load_part(d, x + i, n - i))));
  return hn::GetLane(hn::MaxOfLanes(as_bits, most));
}

}  // namespace bw::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bw::backend::cpu {

HWY_EXPORT(rms_norm_run);
HWY_EXPORT(squared_norm);
HWY_EXPORT(squared_distance);
HWY_EXPORT(dot_of_rows);
HWY_EXPORT(largest_bits);

void rms_norm(ThreadPool& pool, ConstView x, std::span<const float> weight, float eps, View y) {
  const size_t n = weight.size();
  const auto run = &HWY_DYNAMIC_DISPATCH(rms_norm_run);
  parallel_rows(pool, x.rows, x.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) {
      for (size_t c = 0; c < x.cols; c += n) run(x.row(r) + c, weight.data(), n, eps, y.row(r) + c);
    }
  });
}

void row_squared_norms(ThreadPool& pool, ConstView x, const ConstView* minus, View out) {
  const auto norm = minus ? &HWY_DYNAMIC_DISPATCH(squared_distance) : &HWY_DYNAMIC_DISPATCH(squared_norm);
  parallel_rows(pool, x.rows, x.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) out(r, 0) = norm(x.row(r), minus ? minus->row(r) : nullptr, x.cols);
  });
}

void row_ratios(const ConstView* numerator, ConstView denominator, View out, double* sum) {
  double total = 0;
  for (size_t r = 0; r < out.rows; ++r) {
    const float below = denominator(r, 0);
    const float ratio = below > 0 ? (numerator ? (*numerator)(r, 0) : 1.0f) / below : 0.0f;
    out(r, 0) = ratio;
    total += ratio;
  }
  if (sum) *sum += total;
}

float largest_magnitude(ThreadPool& pool, ConstView x, float least) {
  const auto of_row = &HWY_DYNAMIC_DISPATCH(largest_bits);
  std::vector<int32_t> bits(x.rows + 1, std::bit_cast<int32_t>(std::abs(least)));
  parallel_rows(pool, x.rows, x.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) bits[r] = of_row(x.row(r), x.cols);
  });
  return std::bit_cast<float>(*std::max_element(bits.begin(), bits.end()));
}

double dot(ThreadPool& pool, ConstView a, ConstView b) {
  const auto of_rows = &HWY_DYNAMIC_DISPATCH(dot_of_rows);
  std::vector<float> sums(a.rows);
  parallel_rows(pool, a.rows, a.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) sums[r] = of_rows(a.row(r), b.row(r), a.cols);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace bw::backend::cpu
#endif  // HWY_ONCE
