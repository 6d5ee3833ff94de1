// Copies, fills and conversions between float types.
#include <algorithm>
#include <cstring>

#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/convert.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bw::backend::cpu::HWY_NAMESPACE {

using BitsTag = hn::RebindToUnsigned<FloatTag>;
using HalfBitsTag = hn::Rebind<uint16_t, FloatTag>;

// Bits of the nearest bfloat16 in the lower half of each lane, ties to even; NaN stays NaN.
HWY_INLINE hn::Vec<BitsTag> bf16_bits(FloatVec x) {
  const BitsTag du;
  const auto bits = hn::BitCast(du, x);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(x));
  return hn::IfThenElse(is_nan, hn::Or(upper, hn::Set(du, 0x40u)), rounded);
}

void to_bf16_row(const float* HWY_RESTRICT x, BFloat16* HWY_RESTRICT y, size_t n) {
  const FloatTag d;
  const HalfBitsTag dh;
  const size_t step = hn::Lanes(d);
  uint16_t* out = reinterpret_cast<uint16_t*>(y);
  size_t i = 0;
  for (; i + step <= n; i += step)
    hn::StoreU(hn::DemoteTo(dh, hn::BitCast(hn::RebindToSigned<FloatTag>(), bf16_bits(hn::LoadU(d, x + i)))), dh,
               out + i);
  for (; i < n; ++i) y[i] = to_bfloat16(x[i]);
}

void round_to_bf16_row(const float* x, float* y, size_t n) {
  map(x, y, n, [](FloatVec v) HWY_ATTR { return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(bf16_bits(v))); });
}

void from_bf16_row(const BFloat16* HWY_RESTRICT x, float* HWY_RESTRICT y, size_t n) {
  const FloatTag d;
  const HalfBitsTag dh;
  const BitsTag du;
  const size_t step = hn::Lanes(d);
  const uint16_t* in = reinterpret_cast<const uint16_t*>(x);
  size_t i = 0;
  for (; i + step <= n; i += step) {
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, in + i)))), d, y + i);
  }
  for (; i < n; ++i) y[i] = to_float(x[i]);
}

}  // namespace bw::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bw::backend::cpu {

HWY_EXPORT(to_bf16_row);
HWY_EXPORT(round_to_bf16_row);
HWY_EXPORT(from_bf16_row);

namespace {

template <typename In, typename Out, typename Row>
void for_rows(ThreadPool& pool, MatrixView<In> x, MatrixView<Out> y, const Row& row) {
  parallel_rows(pool, x.rows, x.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) row(x.row(r), y.row(r), x.cols);
  });
}

}  // namespace

void fill(ThreadPool& pool, View x, float value) {
  for_rows(pool, x, x, [&](const float*, float* y, size_t n) { std::fill(y, y + n, value); });
}

void copy(ThreadPool& pool, ConstView x, View y) {
  for_rows(pool, x, y, [](const float* a, float* b, size_t n) { std::memmove(b, a, n * sizeof(float)); });
}

void to_bf16(ThreadPool& pool, ConstView x, MatrixView<BFloat16> y) {
  for_rows(pool, x, y, [](const float* a, BFloat16* b, size_t n) { HWY_DYNAMIC_DISPATCH(to_bf16_row)(a, b, n); });
}

void round_to_bf16(ThreadPool& pool, ConstView x, View y) {
  for_rows(pool, x, y, [](const float* a, float* b, size_t n) { HWY_DYNAMIC_DISPATCH(round_to_bf16_row)(a, b, n); });
}

void from_bf16(ThreadPool& pool, MatrixView<const BFloat16> x, View y) {
  for_rows(pool, x, y, [](const BFloat16* a, float* b, size_t n) { HWY_DYNAMIC_DISPATCH(from_bf16_row)(a, b, n); });
}

void to_f16(ThreadPool& pool, ConstView x, MatrixView<Half> y) {
  for_rows(pool, x, y, [](const float* a, Half* b, size_t n) { std::transform(a, a + n, b, to_half); });
}

void from_f16(ThreadPool& pool, MatrixView<const Half> x, View y) {
  for_rows(pool, x, y,
           [](const Half* a, float* b, size_t n) { std::transform(a, a + n, b, [](Half h) { return to_float(h); }); });
}

}  // namespace bw::backend::cpu
#endif  // HWY_ONCE
