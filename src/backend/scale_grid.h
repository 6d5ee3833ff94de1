// The values that a group of an EXL2 linear can take, with the loader's rounding to half at each step:
//   scale(s) = half((s + 1)² · half(scale_max / 256)),  weight = half(q · scale),  q in [-2^(bits-1), 2^(bits-1) - 1]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/half.h"

namespace bw::backend {

inline constexpr int kScaleCodes = 16;

// Factors of max|w| / 2^(bits-1) that are tried as the scale of a column: a little above one (the positive end has one
// level less) down to a third.
inline constexpr float kScaleTrials[] = {1.08f, 1.0f, 0.93f, 0.86f, 0.79f, 0.72f, 0.65f, 0.58f, 0.51f, 0.44f, 0.37f};

// The scales of the 16 codes of a group whose stored scale_max is `scale_max`.
inline std::array<float, kScaleCodes> code_scales(Half scale_max) {
  const float unit = round_to_half(to_float(scale_max) / 256.0f);
  std::array<float, kScaleCodes> scales;
  for (int s = 0; s < kScaleCodes; ++s) {
    scales[static_cast<size_t>(s)] = round_to_half(static_cast<float>((s + 1) * (s + 1)) * unit);
  }
  return scales;
}

// The smallest stored scale_max, of those at or above `top` rounded to half, whose code 15 reaches `top` (finite, >=
// 0); the largest finite half if none does.
Half scale_max_for(float top);

}  // namespace bw::backend
