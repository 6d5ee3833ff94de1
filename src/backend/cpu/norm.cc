// Norms of rows.
#include <cmath>

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

float squared_norm(const float* x, size_t n) { return dot(x, x, n); }

}  // namespace bw::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bw::backend::cpu {

HWY_EXPORT(rms_norm_run);
HWY_EXPORT(squared_norm);

void rms_norm(ThreadPool& pool, ConstView x, std::span<const float> weight, float eps, View y) {
  const size_t n = weight.size();
  const auto run = &HWY_DYNAMIC_DISPATCH(rms_norm_run);
  parallel_rows(pool, x.rows, x.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) {
      for (size_t c = 0; c < x.cols; c += n) run(x.row(r) + c, weight.data(), n, eps, y.row(r) + c);
    }
  });
}

void row_squared_norms(ThreadPool& pool, ConstView x, View out) {
  const auto norm = &HWY_DYNAMIC_DISPATCH(squared_norm);
  parallel_rows(pool, x.rows, x.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) out(r, 0) = norm(x.row(r), x.cols);
  });
}

}  // namespace bw::backend::cpu
#endif  // HWY_ONCE
