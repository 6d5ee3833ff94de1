// Rotary position embedding.
#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/rope.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bw::backend::cpu::HWY_NAMESPACE {

// Rotates the pairs (x[i], x[i + half]) of one head; direction: 1, or -1 for back.
void rotate_head(float* HWY_RESTRICT x, const float* HWY_RESTRICT cos, const float* HWY_RESTRICT sin, size_t half,
                 float direction) {
  const FloatTag d;
  const FloatVec sign = hn::Set(d, direction);
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= half; i += step) {
    const FloatVec a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + half + i);
    const FloatVec c = hn::LoadU(d, cos + i), s = hn::Mul(sign, hn::LoadU(d, sin + i));
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, x + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, x + half + i);
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i], s = direction * sin[i];
    x[i] = a * cos[i] - b * s;
    x[half + i] = b * cos[i] + a * s;
  }
}

}  // namespace bw::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bw::backend::cpu {

HWY_EXPORT(rotate_head);

void rope(ThreadPool& pool, View x, size_t head_dim, ConstIndexView positions, ConstView cos_sin, bool inverse) {
  const size_t half = head_dim / 2;
  const float direction = inverse ? -1.0f : 1.0f;
  const auto rotate = &HWY_DYNAMIC_DISPATCH(rotate_head);
  parallel_rows(pool, x.rows, x.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) {
      const int32_t position = positions(r, 0);
      BW_CHECK(position >= 0 && static_cast<size_t>(position) < cos_sin.rows);
      const float* cos = cos_sin.row(static_cast<size_t>(position));
      for (size_t c = 0; c < x.cols; c += head_dim) rotate(x.row(r) + c, cos, cos + half, half, direction);
    }
  });
}

}  // namespace bw::backend::cpu
#endif  // HWY_ONCE
