// Element-wise operations.
#include <cmath>

#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/activation.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bw::backend::cpu::HWY_NAMESPACE {

void add_row(const float* x, float* y, size_t n) {
  map2(x, y, y, n, [](FloatVec a, FloatVec b) HWY_ATTR { return hn::Add(a, b); });
}

void scaled_sum_row(const float* x, float alpha, float beta, float* y, size_t n) {
  if (beta == 0.0f) return scale_to(x, alpha, y, n);
  const FloatVec a = hn::Set(FloatTag(), alpha), b = hn::Set(FloatTag(), beta);
  map2(x, y, y, n, [a, b](FloatVec u, FloatVec v) HWY_ATTR { return hn::MulAdd(a, u, hn::Mul(b, v)); });
}

void weighted_difference_row(const float* x, const float* minus, float weight, float* y, size_t n) {
  const FloatVec w = hn::Set(FloatTag(), weight);
  map2(x, minus, y, n, [w](FloatVec a, FloatVec b) HWY_ATTR { return hn::Mul(w, hn::Sub(a, b)); });
}

// gate / (1 + exp(-gate)) * up. The exponent is bounded where exp would overflow: the quotient is nil there.
void silu_row(const float* gate, const float* up, float* y, size_t n) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f), limit = hn::Set(d, 88.0f);
  map2(gate, up, y, n, [=](FloatVec g, FloatVec u) HWY_ATTR {
    const FloatVec e = hn::Exp(FloatTag(), hn::Min(hn::Neg(g), limit));
    return hn::Mul(hn::Div(g, hn::Add(one, e)), u);
  });
}

// 0.5 * g * (1 + tanh(sqrt(2/pi) * (g + 0.044715 g^3))) * up
void gelu_tanh_row(const float* gate, const float* up, float* y, size_t n) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f), half = hn::Set(d, 0.5f);
  const FloatVec c1 = hn::Set(d, 0.7978845608f), c3 = hn::Set(d, 0.7978845608f * 0.044715f);
  map2(gate, up, y, n, [=](FloatVec g, FloatVec u) HWY_ATTR {
    const FloatVec inner = hn::Mul(g, hn::MulAdd(c3, hn::Mul(g, g), c1));
    return hn::Mul(hn::Mul(hn::Mul(half, g), hn::Add(one, hn::Tanh(FloatTag(), inner))), u);
  });
}

void softcap_row(float* x, float cap, size_t n) {
  const FloatVec c = hn::Set(FloatTag(), cap), inverse = hn::Set(FloatTag(), 1.0f / cap);
  map(x, x, n, [=](FloatVec v) HWY_ATTR { return hn::Mul(c, hn::Tanh(FloatTag(), hn::Mul(v, inverse))); });
}

}  // namespace bw::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bw::backend::cpu {

HWY_EXPORT(add_row);
HWY_EXPORT(scale_to);
HWY_EXPORT(scaled_sum_row);
HWY_EXPORT(weighted_difference_row);
HWY_EXPORT(silu_row);
HWY_EXPORT(gelu_tanh_row);
HWY_EXPORT(softcap_row);

namespace {

// With erf: no architecture of today needs it fast.
void gelu_row(const float* gate, const float* up, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = 0.5f * gate[i] * (1.0f + std::erf(gate[i] * 0.70710678f)) * up[i];
}

template <typename Row>
void for_each_row(ThreadPool& pool, size_t rows, size_t cols, const Row& row) {
  parallel_rows(pool, rows, cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) row(r);
  });
}

}  // namespace

void add(ThreadPool& pool, ConstView x, View y) {
  const auto row = &HWY_DYNAMIC_DISPATCH(add_row);
  for_each_row(pool, x.rows, x.cols, [&](size_t r) { row(x.row(r), y.row(r), x.cols); });
}

void scale(ThreadPool& pool, View x, float factor) {
  const auto row = &HWY_DYNAMIC_DISPATCH(scale_to);
  for_each_row(pool, x.rows, x.cols, [&](size_t r) { row(x.row(r), factor, x.row(r), x.cols); });
}

void scale_rows(ThreadPool& pool, ConstView x, ConstView factors, View y) {
  const auto row = &HWY_DYNAMIC_DISPATCH(scale_to);
  for_each_row(pool, x.rows, x.cols, [&](size_t r) { row(x.row(r), factors(r, 0), y.row(r), x.cols); });
}

void weighted_difference(ThreadPool& pool, ConstView x, ConstView minus, ConstView weight, View y) {
  const auto row = &HWY_DYNAMIC_DISPATCH(weighted_difference_row);
  for_each_row(pool, x.rows, x.cols, [&](size_t r) { row(x.row(r), minus.row(r), weight(r, 0), y.row(r), x.cols); });
}

void scaled_sum(ConstView x, float alpha, float beta, View y) {
  const auto row = &HWY_DYNAMIC_DISPATCH(scaled_sum_row);
  for (size_t r = 0; r < x.rows; ++r) row(x.row(r), alpha, beta, y.row(r), x.cols);
}

void gated_activation(ThreadPool& pool, ConstView gate, ConstView up, ActivationKind kind, View y) {
  auto row = &gelu_row;
  if (kind == ActivationKind::kSilu) row = &HWY_DYNAMIC_DISPATCH(silu_row);
  if (kind == ActivationKind::kGeluTanh) row = &HWY_DYNAMIC_DISPATCH(gelu_tanh_row);
  for_each_row(pool, y.rows, y.cols, [&](size_t r) { row(gate.row(r), up.row(r), y.row(r), y.cols); });
}

void softcap(ThreadPool& pool, View x, float cap) {
  const auto row = &HWY_DYNAMIC_DISPATCH(softcap_row);
  for_each_row(pool, x.rows, x.cols, [&](size_t r) { row(x.row(r), cap, x.cols); });
}

}  // namespace bw::backend::cpu
#endif  // HWY_ONCE
