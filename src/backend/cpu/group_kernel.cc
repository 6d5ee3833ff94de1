#include "backend/cpu/group_kernel.h"

#include <algorithm>

#include "backend/scale_grid.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/group_kernel.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace bw::backend::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, kColumnStep>;
using VF = hn::Vec<DF>;
using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;

// The order in which the 16 codes are tried: likely ones first, so that the others are given up after few rows. It is
// also the order in which equal errors are decided, so it must not depend on the vector length.
constexpr int kCodeOrder[] = {10, 11, 12, 13, 14, 15, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
constexpr size_t kRowsBetweenChecks = 16;

// Loads one stripe of N columns of the group into a dense buffer (rows * N) and returns the columns' max|w|.
HWY_INLINE VF load_stripe(MatrixView<const float> w, size_t col, float* HWY_RESTRICT stripe) {
  const DF d;
  VF top = hn::Zero(d);
  for (size_t r = 0; r < w.rows; ++r) {
    const VF x = hn::LoadU(d, w.data + r * w.stride + col);
    hn::Store(x, d, stripe + r * hn::Lanes(d));
    top = hn::Max(top, hn::Abs(x));
  }
  return top;
}

// 1 / s; 0 for 0.
HWY_INLINE VF inverse_of(VF s) {
  const DF d;
  return hn::IfThenElse(hn::Gt(s, hn::Zero(d)), hn::Div(hn::Set(d, 1.0f), s), hn::Zero(d));
}

// Rounds x / scale to a level; low and high are the smallest and largest level.
HWY_INLINE VF round_level(VF x, VF inverse, VF low, VF high) {
  return hn::Min(hn::Max(hn::Round(hn::Mul(x, inverse)), low), high);
}

// Weighted squared rounding error of each column of the stripe with scale `s`. Gives up, with a part of the sum, once
// no column can come out below its `limit` any more.
HWY_INLINE VF stripe_error(const float* HWY_RESTRICT stripe, size_t rows, const float* HWY_RESTRICT weights, VF s,
                           VF low, VF high, VF limit) {
  const DF d;
  const VF inverse = inverse_of(s);
  VF sum = hn::Zero(d);
  for (size_t r = 0; r < rows;) {
    for (const size_t end = std::min(rows, r + kRowsBetweenChecks); r < end; ++r) {
      const VF x = hn::Load(d, stripe + r * hn::Lanes(d));
      const VF e = hn::NegMulAdd(round_level(x, inverse, low, high), s, x);
      sum = hn::MulAdd(hn::Mul(e, e), hn::Set(d, weights[r]), sum);
    }
    if (hn::AllFalse(d, hn::Lt(sum, limit))) break;
  }
  return sum;
}

void find_scales_impl(MatrixView<const float> w, const float* weights, int bits, float* scales) {
  const DF d;
  const float levels = static_cast<float>(1 << (bits - 1));
  const VF low = hn::Set(d, -levels), high = hn::Set(d, levels - 1);
  HWY_ALIGN float stripe[kMaxGroupRows * kColumnStep];
  for (size_t c = 0; c < w.cols; c += hn::Lanes(d)) {
    const VF unit = hn::Mul(load_stripe(w, c, stripe), hn::Set(d, 1.0f / levels));
    VF best = hn::Zero(d), best_error = hn::Set(d, 3.0e38f);
    for (const float trial : kScaleTrials) {
      const VF s = hn::Mul(unit, hn::Set(d, trial));
      const VF error = stripe_error(stripe, w.rows, weights, s, low, high, best_error);
      const auto better = hn::Lt(error, best_error);
      best = hn::IfThenElse(better, s, best);
      best_error = hn::IfThenElse(better, error, best_error);
    }
    hn::StoreU(hn::Min(best, hn::Set(d, kLargestHalf / levels)), d, scales + c);
  }
}

void find_codes_impl(MatrixView<const float> w, const float* weights, int bits, const float* code_scales,
                     uint8_t* codes, double* errors) {
  const DF d;
  const DI di;
  const size_t lanes = hn::Lanes(d);
  const float levels = static_cast<float>(1 << (bits - 1));
  const VF low = hn::Set(d, -levels), high = hn::Set(d, levels - 1);
  HWY_ALIGN float stripe[kMaxGroupRows * kColumnStep];
  HWY_ALIGN int32_t chosen[kColumnStep];
  for (size_t c = 0; c < w.cols; c += lanes) {
    const VF top = load_stripe(w, c, stripe);
    VF best_scale = hn::Set(d, code_scales[0]), best_error = hn::Set(d, 3.0e38f);
    VI best = hn::Zero(di);
    for (const int k : kCodeOrder) {
      const VF s = hn::Set(d, code_scales[k]);
      const VF error = stripe_error(stripe, w.rows, weights, s, low, high, best_error);
      const auto better = hn::Lt(error, best_error);
      best = hn::IfThenElse(hn::RebindMask(di, better), hn::Set(di, k), best);
      best_scale = hn::IfThenElse(better, s, best_scale);
      best_error = hn::IfThenElse(better, error, best_error);
    }
    const auto zero = hn::Eq(top, hn::Zero(d));
    best = hn::IfThenElse(hn::RebindMask(di, zero), hn::Zero(di), best);
    hn::Store(best, di, chosen);
    for (size_t i = 0; i < lanes; ++i) codes[c + i] = static_cast<uint8_t>(chosen[i]);
    if (errors == nullptr) continue;
    const VF inverse = inverse_of(best_scale);
    for (size_t r = 0; r < w.rows; ++r) {
      const VF x = hn::Load(d, stripe + r * lanes);
      const VF e = hn::NegMulAdd(round_level(x, inverse, low, high), best_scale, x);
      errors[r] += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Mul(e, e)))) * weights[r];
    }
  }
}

// Rounds the values of a vector, each at most the largest half, to half and back. In float arithmetic, since Highway's
// conversion cuts off instead of rounding on processors without one of their own.
HWY_INLINE VF through_half(VF x) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  const VF size = hn::Abs(x);
  const auto bits = hn::BitCast(du, size);
  const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0xfff)));
  const VF normal = hn::BitCast(d, hn::AndNot(hn::Set(du, 0x1fff), rounded));
  const VF half = hn::Set(d, 0.5f);  // floats from here to 1 lie as far apart as subnormal halves: 2^-24
  const VF subnormal = hn::Sub(hn::Add(size, half), half);
  return hn::CopySign(hn::IfThenElse(hn::Lt(size, hn::Set(d, 0x1p-14f)), subnormal, normal), x);
}

void round_and_feed_impl(MatrixView<float> w, size_t group_rows, MatrixView<const float> u, int bits,
                         const float* scales, MatrixView<uint8_t> q, MatrixView<float> e, double* error) {
  const DF d;
  const DI di;
  const hn::Rebind<uint8_t, DF> du8;
  const size_t lanes = hn::Lanes(d);
  const float levels = static_cast<float>(1 << (bits - 1));
  const VF low = hn::Set(d, -levels), high = hn::Set(d, levels - 1);
  HWY_ALIGN float stripe[kMaxGroupRows * kColumnStep];
  const size_t rest = w.rows - group_rows;
  for (size_t c = 0; c < w.cols; c += lanes) {
    load_stripe(w.rows_slice(0, group_rows), c, stripe);
    const VF s = hn::LoadU(d, scales + c);
    const VF inverse = inverse_of(s);
    VF sum = hn::Zero(d);
    for (size_t i = 0; i < group_rows; ++i) {
      const float* HWY_RESTRICT ui = u.data + i * u.stride;
      const VF x = hn::Load(d, stripe + i * lanes);
      const VF level = round_level(x, inverse, low, high);
      const VF err = hn::Mul(hn::Sub(x, through_half(hn::Mul(level, s))), hn::Set(d, 1.0f / ui[i]));
      sum = hn::MulAdd(err, err, sum);
      hn::StoreU(hn::DemoteTo(du8, hn::ConvertTo(di, hn::Sub(level, low))), du8, q.data + i * q.stride + c);
      hn::StoreU(err, d, e.data + i * e.stride + c);
      hn::Store(err, d, stripe + i * lanes);  // from here on the buffer holds the error of this row
      for (size_t j = i + 1; j < group_rows; ++j) {
        const VF t = hn::Load(d, stripe + j * lanes);
        hn::Store(hn::NegMulAdd(err, hn::Set(d, ui[j]), t), d, stripe + j * lanes);
      }
    }
    *error += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
    for (size_t j = 0; j < rest; ++j) {
      float* target = w.data + (group_rows + j) * w.stride + c;
      VF t = hn::LoadU(d, target);
      for (size_t i = 0; i < group_rows; ++i) {
        t = hn::NegMulAdd(hn::Load(d, stripe + i * lanes), hn::Set(d, u.data[i * u.stride + group_rows + j]), t);
      }
      hn::StoreU(t, d, target);
    }
  }
}

double descend_impl(MatrixView<float> gradient, MatrixView<const float> h, int bits, const float* scales,
                    MatrixView<uint8_t> q, MatrixView<float> e) {
  const DF d;
  const DI di;
  const hn::Rebind<uint8_t, DF> du8;
  const float levels = static_cast<float>(1 << (bits - 1));
  const VF low = hn::Set(d, -levels), high = hn::Set(d, levels - 1), zero = hn::Zero(d);
  double gained = 0;
  for (size_t c = 0; c < gradient.cols; c += hn::Lanes(d)) {
    const VF s = hn::LoadU(d, scales + c);
    const VF inverse = inverse_of(s);
    VF sum = zero;
    for (size_t i = 0; i < gradient.rows; ++i) {
      const float* HWY_RESTRICT hi = h.row(i);
      const VF g = hn::LoadU(d, gradient.row(i) + c), curvature = hn::Set(d, hi[i]);
      const VF level = hn::Add(hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(du8, q.row(i) + c))), low);
      const VF value = through_half(hn::Mul(level, s));
      const VF wanted = hn::MulAdd(g, hn::Set(d, 1.0f / hi[i]), value);
      const VF next = round_level(wanted, inverse, low, high);
      const VF change = hn::Sub(through_half(hn::Mul(next, s)), value);
      const VF gain = hn::Mul(change, hn::NegMulAdd(change, curvature, hn::Add(g, g)));
      const auto better = hn::Gt(gain, zero);
      if (hn::AllFalse(d, better)) continue;
      const VF step = hn::IfThenElseZero(better, change);
      const VF kept = hn::Sub(hn::IfThenElse(better, next, level), low);
      hn::StoreU(hn::DemoteTo(du8, hn::ConvertTo(di, kept)), du8, q.row(i) + c);
      hn::StoreU(hn::Sub(hn::LoadU(d, e.row(i) + c), step), d, e.row(i) + c);
      sum = hn::Add(sum, hn::IfThenElseZero(better, gain));
      for (size_t j = i + 1; j < gradient.rows; ++j) {
        float* at = gradient.row(j) + c;
        hn::StoreU(hn::NegMulAdd(step, hn::Set(d, hi[j]), hn::LoadU(d, at)), d, at);
      }
    }
    gained += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  return gained;
}

}  // namespace HWY_NAMESPACE
}  // namespace bw::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bw::backend::cpu {

HWY_EXPORT(find_scales_impl);
HWY_EXPORT(find_codes_impl);
HWY_EXPORT(round_and_feed_impl);
HWY_EXPORT(descend_impl);

void find_scales(MatrixView<const float> w, const float* weights, int bits, float* scales) noexcept {
  HWY_DYNAMIC_DISPATCH(find_scales_impl)(w, weights, bits, scales);
}

void find_codes(MatrixView<const float> w, const float* weights, int bits, const float* code_scales, uint8_t* codes,
                double* errors) noexcept {
  HWY_DYNAMIC_DISPATCH(find_codes_impl)(w, weights, bits, code_scales, codes, errors);
}

void round_and_feed(MatrixView<float> w, size_t group_rows, MatrixView<const float> u, int bits, const float* scales,
                    MatrixView<uint8_t> q, MatrixView<float> e, double* error) noexcept {
  HWY_DYNAMIC_DISPATCH(round_and_feed_impl)(w, group_rows, u, bits, scales, q, e, error);
}

double descend(MatrixView<float> gradient, MatrixView<const float> h, int bits, const float* scales,
               MatrixView<uint8_t> q, MatrixView<float> e) noexcept {
  return HWY_DYNAMIC_DISPATCH(descend_impl)(gradient, h, bits, scales, q, e);
}

std::vector<int64_t> supported_targets() {
  std::vector<int64_t> targets;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1)
    targets.push_back(left & -left);
  return targets;
}

}  // namespace bw::backend::cpu
#endif
