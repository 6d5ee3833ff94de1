// Gradients of the operations on rows, and of log-probabilities.
#include <algorithm>
#include <cmath>

#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/gradients.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bw::backend::cpu::HWY_NAMESPACE {

// Σ a[i] * b[i] * c[i], in two running sums.
HWY_INLINE float dot3(const float* a, const float* b, const float* c, size_t n) {
  const FloatTag d;
  const size_t step = hn::Lanes(d);
  FloatVec s0 = hn::Zero(d), s1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * step <= n; i += 2 * step) {
    s0 = hn::MulAdd(hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), hn::LoadU(d, c + i), s0);
    const size_t j = i + step;
    s1 = hn::MulAdd(hn::Mul(hn::LoadU(d, a + j), hn::LoadU(d, b + j)), hn::LoadU(d, c + j), s1);
  }
  for (; i < n; i += step) {
    const size_t left = std::min(step, n - i);
    const FloatVec ab = hn::Mul(load_part(d, a + i, left), load_part(d, b + i, left));
    s1 = hn::MulAdd(ab, load_part(d, c + i, left), s1);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
}

// One run. dx may be dy.
void rms_norm_gradient_run(const float* x, const float* weight, const float* dy, size_t n, float eps, bool accumulate,
                           float* dx) {
  const FloatTag d;
  const float r = 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + eps);
  const float along = r * r * r * (dot3(weight, dy, x, n) / static_cast<float>(n));  // what to take off along x
  const FloatVec factor = hn::Set(d, r), off = hn::Set(d, along);
  const auto gradient = [=](FloatVec v, FloatVec w, FloatVec g)
                            HWY_ATTR { return hn::NegMulAdd(v, off, hn::Mul(factor, hn::Mul(w, g))); };
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= n; i += step) {
    const FloatVec g = gradient(hn::LoadU(d, x + i), hn::LoadU(d, weight + i), hn::LoadU(d, dy + i));
    hn::StoreU(accumulate ? hn::Add(hn::LoadU(d, dx + i), g) : g, d, dx + i);
  }
  if (i == n) return;
  const size_t left = n - i;
  const FloatVec g = gradient(load_part(d, x + i, left), load_part(d, weight + i, left), load_part(d, dy + i, left));
  store_part(accumulate ? hn::Add(load_part(d, dx + i, left), g) : g, d, dx + i, left);
}

// dgate = dy * up * slope, dup = dy * value, for activation(gate, value, slope). dgate may be gate or dy, dup may be
// up.
template <typename Activation>
HWY_INLINE void gated_gradient(const float* gate, const float* up, const float* dy, float* dgate, float* dup, size_t n,
                               const Activation& activation) {
  const FloatTag d;
  const size_t step = hn::Lanes(d);
  FloatVec value, slope;
  size_t i = 0;
  for (; i + step <= n; i += step) {
    const FloatVec u = hn::LoadU(d, up + i), g = hn::LoadU(d, dy + i);
    activation(hn::LoadU(d, gate + i), value, slope);
    hn::StoreU(hn::Mul(hn::Mul(g, u), slope), d, dgate + i);
    hn::StoreU(hn::Mul(g, value), d, dup + i);
  }
  if (i == n) return;
  const size_t left = n - i;
  const FloatVec u = load_part(d, up + i, left), g = load_part(d, dy + i, left);
  activation(load_part(d, gate + i, left), value, slope);
  store_part(hn::Mul(hn::Mul(g, u), slope), d, dgate + i, left);
  store_part(hn::Mul(g, value), d, dup + i, left);
}

// With s = 1 / (1 + e) and e = exp(-g), bounded where it would overflow: g · s, s + g · s · e · s.
void silu_gradient_row(const float* gate, const float* up, const float* dy, float* dgate, float* dup, size_t n) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f), limit = hn::Set(d, 88.0f);
  gated_gradient(gate, up, dy, dgate, dup, n, [=](FloatVec g, FloatVec& value, FloatVec& slope) HWY_ATTR {
    const FloatVec e = hn::Exp(FloatTag(), hn::Min(hn::Neg(g), limit));
    const FloatVec s = hn::Div(one, hn::Add(one, e));
    value = hn::Mul(g, s);
    slope = hn::MulAdd(value, hn::Mul(e, s), s);
  });
}

// With t = tanh(inner): g · (1 + t) / 2, (1 + t) / 2 + g · (1 - t²) / 2 · inner'.
void gelu_tanh_gradient_row(const float* gate, const float* up, const float* dy, float* dgate, float* dup, size_t n) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f), half = hn::Set(d, 0.5f);
  const FloatVec c1 = hn::Set(d, 0.7978845608f), c3 = hn::Set(d, 0.7978845608f * 0.044715f);
  const FloatVec three_c3 = hn::Set(d, 3 * 0.7978845608f * 0.044715f);
  gated_gradient(gate, up, dy, dgate, dup, n, [=](FloatVec g, FloatVec& value, FloatVec& slope) HWY_ATTR {
    const FloatVec square = hn::Mul(g, g);
    const FloatVec t = hn::Tanh(FloatTag(), hn::Mul(g, hn::MulAdd(c3, square, c1)));
    const FloatVec share = hn::Mul(half, hn::Add(one, t));
    const FloatVec inner_slope = hn::MulAdd(three_c3, square, c1);
    value = hn::Mul(g, share);
    slope = hn::MulAdd(hn::Mul(hn::Mul(half, g), hn::NegMulAdd(t, t, one)), inner_slope, share);
  });
}

constexpr size_t kBlock = 512;

// weights = exp(x - maximum), n <= kBlock; NaN where that is no number (hn::Exp gives 0 there).
HWY_INLINE void weigh(const float* x, size_t n, float maximum, float* weights) {
  const FloatVec top = hn::Set(FloatTag(), maximum);
  map(x, weights, n, [top](FloatVec v) HWY_ATTR {
    const FloatVec below = hn::Sub(v, top);
    return hn::IfThenElse(hn::IsNaN(below), below, hn::Exp(FloatTag(), below));
  });
}

// x[i] = weights[i] * factor, times the slope of the softcap at x[i] if there is one.
HWY_INLINE void set_gradients(float* x, const float* weights, size_t n, float factor, float softcap) {
  const FloatTag d;
  const FloatVec f = hn::Set(d, factor), one = hn::Set(d, 1.0f);
  if (softcap == 0.0f) return map(weights, x, n, [f](FloatVec w) HWY_ATTR { return hn::Mul(w, f); });
  const FloatVec inverse = hn::Set(d, 1.0f / softcap);
  map2(x, weights, x, n, [=](FloatVec v, FloatVec w) HWY_ATTR {
    const FloatVec t = hn::Mul(v, inverse);
    return hn::Mul(hn::Mul(w, f), hn::NegMulAdd(t, t, one));
  });
}

void sampled_gradient_row(float* x, size_t n, float uniform, float softcap) {
  HWY_ALIGN float weights[kBlock];
  const float maximum = largest(x, n);
  double total = 0;
  for (size_t first = 0; first < n; first += kBlock) {
    const size_t count = std::min(kBlock, n - first);
    weigh(x + first, count, maximum, weights);
    for (size_t i = 0; i < count; ++i) total += weights[i];
  }
  const double wanted = uniform * total;
  double sum = 0;
  size_t drawn = n;    // the token, or so far the last that has a chance
  float logit = 0;     // of it
  bool found = false;  // the sum has exceeded what is wanted
  for (size_t first = 0; first < n; first += kBlock) {
    const size_t count = std::min(kBlock, n - first);
    weigh(x + first, count, maximum, weights);
    for (size_t i = 0; i < count && !found; ++i) {
      sum += weights[i];
      if (weights[i] > 0) drawn = first + i, logit = x[first + i];
      found = sum > wanted;
    }
    set_gradients(x + first, weights, count, static_cast<float>(1.0 / total), softcap);
  }
  if (drawn == n) return;
  const float t = softcap != 0.0f ? logit / softcap : 0.0f;
  x[drawn] -= 1.0f - t * t;
}

}  // namespace bw::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bw::backend::cpu {

HWY_EXPORT(rms_norm_gradient_run);
HWY_EXPORT(silu_gradient_row);
HWY_EXPORT(gelu_tanh_gradient_row);
HWY_EXPORT(sampled_gradient_row);

namespace {

// With erf: no architecture of today needs it fast.
void gelu_gradient_row(const float* gate, const float* up, const float* dy, float* dgate, float* dup, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float x = gate[i], g = dy[i];
    const float share = 0.5f * (1.0f + std::erf(x * 0.70710678f));
    const float density = 0.39894228f * std::exp(-0.5f * x * x);
    dgate[i] = g * up[i] * (share + x * density);
    dup[i] = g * (x * share);
  }
}

}  // namespace

void rms_norm_gradient(ThreadPool& pool, ConstView x, std::span<const float> weight, float eps, ConstView dy,
                       bool accumulate, View dx) {
  const size_t n = weight.size();
  const auto run = &HWY_DYNAMIC_DISPATCH(rms_norm_gradient_run);
  parallel_rows(pool, x.rows, x.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) {
      for (size_t c = 0; c < x.cols; c += n) {
        run(x.row(r) + c, weight.data(), dy.row(r) + c, n, eps, accumulate, dx.row(r) + c);
      }
    }
  });
}

void gated_activation_gradient(ThreadPool& pool, ConstView gate, ConstView up, ActivationKind kind, ConstView dy,
                               View dgate, View dup) {
  auto row = &gelu_gradient_row;
  if (kind == ActivationKind::kSilu) row = &HWY_DYNAMIC_DISPATCH(silu_gradient_row);
  if (kind == ActivationKind::kGeluTanh) row = &HWY_DYNAMIC_DISPATCH(gelu_tanh_gradient_row);
  parallel_rows(pool, dy.rows, dy.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) {
      row(gate.row(r), up.row(r), dy.row(r), dgate.row(r), dup.row(r), dy.cols);
    }
  });
}

void sampled_gradient(ThreadPool& pool, View logits, ConstView uniforms, float softcap) {
  const auto row = &HWY_DYNAMIC_DISPATCH(sampled_gradient_row);
  parallel_rows(pool, logits.rows, logits.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) row(logits.row(r), logits.cols, uniforms(r, 0), softcap);
  });
}

}  // namespace bw::backend::cpu
#endif  // HWY_ONCE
