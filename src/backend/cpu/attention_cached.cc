// Attention of one new token per sequence against cached keys and values. Bound by reading the cache, so each key and
// value is read once for all query heads that share it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/matmul.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_cached.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bw::backend::cpu::HWY_NAMESPACE {

// Scores become weights that sum to 1.
void softmax_row(float* x, size_t n, float softcap) {
  const FloatTag d;
  if (softcap != 0.0f) {
    const FloatVec cap = hn::Set(d, softcap), inverse = hn::Set(d, 1.0f / softcap);
    map(x, x, n, [=](FloatVec v) HWY_ATTR { return hn::Mul(cap, hn::Tanh(FloatTag(), hn::Mul(v, inverse))); });
  }
  const FloatVec maximum = hn::Set(d, largest(x, n)), least = hn::Set(d, -87.0f);  // see attention.cc
  map(x, x, n, [=](FloatVec v) HWY_ATTR {
    const FloatVec relative = hn::Sub(v, maximum);
    return hn::IfThenElseZero(hn::Ge(relative, least), hn::Exp(FloatTag(), relative));
  });
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += x[i];
  const FloatVec factor = hn::Set(d, static_cast<float>(1.0 / sum));
  map(x, x, n, [factor](FloatVec v) HWY_ATTR { return hn::Mul(v, factor); });
}

}  // namespace bw::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bw::backend::cpu {

HWY_EXPORT(softmax_row);

void attention_cached(ThreadPool& pool, ConstView q, ConstView k_cache, ConstView v_cache, size_t capacity,
                      size_t length, const AttentionShape& shape, View out) {
  const size_t d = shape.head_dim, group = shape.n_heads / shape.n_kv_heads;
  const size_t oldest = shape.window != 0 && length > shape.window ? length - shape.window : 0;
  const size_t n = length - oldest;
  pool.parallel_for(q.rows * shape.n_kv_heads, [&](size_t task, size_t) {
    const size_t sequence = task / shape.n_kv_heads, head = task % shape.n_kv_heads;
    const size_t row = sequence * capacity + oldest;
    const size_t stride = k_cache.stride;
    const float* const queries = q.row(sequence) + head * group * d;  // (group, d), packed
    AlignedBuffer<float> scores(group * n);
    sgemm({queries, d, false}, {k_cache.row(row) + head * d, stride, true}, group, n, d, shape.scale, 0.0f,
          scores.data(), n);
    for (size_t h = 0; h < group; ++h) HWY_DYNAMIC_DISPATCH(softmax_row)(scores.data() + h * n, n, shape.softcap);
    sgemm({scores.data(), n, false}, {v_cache.row(row) + head * d, stride, false}, group, d, n, 1.0f, 0.0f,
          out.row(sequence) + head * group * d, d);
  });
}

}  // namespace bw::backend::cpu
#endif  // HWY_ONCE
