#include "backend/scale_grid.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace bw::backend {
namespace {

// x to the nearest binary16, ties to even, from its definition.
double nearest_half(double x) {
  if (x == 0) return 0;
  const int exponent = std::max(std::ilogb(x), -14);
  const double unit = std::ldexp(1.0, exponent - 10);
  return std::nearbyint(x / unit) * unit;
}

TEST(ScaleGrid, ScalesFollowTheLoadersRounding) {
  for (uint32_t bits = 0; bits <= 0x7bff; ++bits) {
    const Half top{static_cast<uint16_t>(bits)};
    const auto scales = code_scales(top);
    const double unit = nearest_half(static_cast<double>(to_float(top)) / 256);
    for (int s = 0; s < kScaleCodes; ++s) {
      ASSERT_EQ(scales[static_cast<size_t>(s)], nearest_half((s + 1) * (s + 1) * unit)) << bits << " code " << s;
      ASSERT_GE(scales[static_cast<size_t>(s)], scales[static_cast<size_t>(std::max(0, s - 1))]);
    }
  }
}

void expect_smallest(float top) {
  const Half found = scale_max_for(top);
  const auto bits = static_cast<uint16_t>(found);
  ASSERT_LE(bits, 0x7bff) << top << ": not finite";
  ASSERT_GE(code_scales(found).back(), std::min(top, code_scales(Half(0x7bff)).back())) << bits;
  for (uint16_t lower = static_cast<uint16_t>(to_half(top)); lower < bits; ++lower) {
    ASSERT_LT(code_scales(Half(lower)).back(), top) << lower << " would have reached it, chosen " << bits;
  }
}

TEST(ScaleGrid, Code15ReachesTheTopAndNoSmallerMaximumDoes) {
  Rng rng(3);
  for (int i = 0; i < 20000; ++i)
    expect_smallest(std::ldexp(1.0f + rng.next_float(), static_cast<int>(rng.below(46)) - 30));
  for (const float top : {0.0f, 1e-45f, 1e-38f, 0x1p-26f, 0x1p-25f, 0x1p-24f, 0x1p-17f, 0x1p-16f, 0x1p-14f, 65503.0f}) {
    expect_smallest(top);
  }
  EXPECT_EQ(scale_max_for(0), Half(0));
}

TEST(ScaleGrid, TopsBeyondHalfTakeTheLargestFiniteMaximum) {
  for (const float top : {65504.0f, 65519.0f, 65520.0f, 70000.0f, 1e30f, 3.4e38f}) {
    EXPECT_EQ(scale_max_for(top), Half(0x7bff)) << top;
    for (const float s : code_scales(scale_max_for(top))) EXPECT_TRUE(std::isfinite(s));
  }
}

}  // namespace
}  // namespace bw::backend
