#include "codec/candidates.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "codec/exl2.h"

namespace bw::codec {
namespace {

using quant::kBitWidths;
using quant::kGroupSizes;
using quant::kWidths;
using quant::PriceTable;

// Prices that fall about 4-fold a bit and with the row, as those of real linears do; `noise` shakes every group.
PriceTable table_of(uint32_t in, uint64_t seed, double noise) {
  Rng rng(seed);
  PriceTable t;
  t.in = in;
  for (size_t size = 0; size < std::size(kGroupSizes); ++size) {
    const uint32_t groups = (in + kGroupSizes[size] - 1) / kGroupSizes[size];
    for (size_t w = 0; w < kWidths; ++w) {
      for (uint32_t g = 0; g < groups; ++g) {
        const double first = g * kGroupSizes[size], rows = std::min(kGroupSizes[size], in - g * kGroupSizes[size]);
        const double weight = 1 / (1 + 30 * first / in);
        t.errors[w][size].push_back(rows * weight * std::pow(4.0, -kBitWidths[w]) *
                                    (1 + 0.05 * static_cast<double>(size)) * (1 + noise * rng.next_double()));
      }
    }
  }
  return t;
}

// Price that a convex combination of the candidates of other sizes reaches at `bits`; infinite outside their range.
double hull_price(const std::vector<Candidate>& all, uint64_t bits, uint32_t group_size) {
  double best = INFINITY;
  for (const Candidate& a : all) {
    if (a.layout.runs[0].group_size != group_size || a.bits > bits) continue;
    for (const Candidate& b : all) {
      if (b.layout.runs[0].group_size != group_size || b.bits < bits) continue;
      const double share =
          a.bits == b.bits ? 0 : static_cast<double>(bits - a.bits) / static_cast<double>(b.bits - a.bits);
      best = std::min(best, a.price + share * (b.price - a.price));
    }
  }
  return best;
}

TEST(Candidates, AreValidSortedAndPricedByTheTable) {
  for (const uint32_t in : {32u, 64u, 96u, 320u, 1536u}) {
    for (const double noise : {0.0, 0.3, 5.0}) {
      for (const uint64_t extra : {uint64_t{0}, uint64_t{16 * 100}}) {
        SCOPED_TRACE(testing::Message() << in << " inputs, noise " << noise);
        const PriceTable t = table_of(in, in, noise);
        const std::vector<Candidate> all = candidates(t, 100, extra);
        ASSERT_FALSE(all.empty());
        for (size_t i = 0; i < all.size(); ++i) {
          EXPECT_NO_THROW(all[i].layout.validate(in, "x"));
          EXPECT_EQ(all[i].bits, stored_bits(all[i].layout, 100) + extra);
          EXPECT_EQ(all[i].price, t.price(all[i].layout));
          for (const quant::BitRun& run : all[i].layout.runs)
            EXPECT_EQ(run.group_size, all[i].layout.runs[0].group_size);
          if (i > 0) {
            EXPECT_LE(std::pair(all[i - 1].bits, all[i - 1].price), std::pair(all[i].bits, all[i].price));
          }
          for (size_t j = 0; j < i; ++j) EXPECT_FALSE(all[i].layout == all[j].layout) << all[i].layout.to_string();
        }
        for (const int bits : kBitWidths) {
          for (const uint32_t size : kGroupSizes) {
            const quant::Layout uniform = quant::uniform_layout(in, bits, size);
            EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const Candidate& c) { return c.layout == uniform; }));
          }
        }
      }
    }
  }
}

// No layout of falling widths lies below the hull by more than what thinning to min_step leaves.
TEST(Candidates, LieOnTheHull) {
  constexpr uint32_t kIn = 192, kOut = 64;
  for (const double noise : {0.0, 0.5}) {
    const PriceTable t = table_of(kIn, 3, noise);
    const std::vector<Candidate> all = candidates(t, kOut, 0, 0.0);
    // Every layout of falling widths in steps of 64 rows.
    for (size_t a = 0; a < kWidths; ++a) {
      for (size_t b = a; b < kWidths; ++b) {
        for (size_t c = b; c < kWidths; ++c) {
          quant::Layout layout;
          for (const size_t w : {a, b, c}) {
            if (!layout.runs.empty() && layout.runs.back().bits == kBitWidths[w]) {
              layout.runs.back().rows += 64;
            } else {
              layout.runs.push_back({kBitWidths[w], 64, 64});
            }
          }
          const double price = t.price(layout);
          EXPECT_GE(price, hull_price(all, stored_bits(layout, kOut), 64) * (1 - 1e-12)) << layout.to_string();
        }
      }
    }
  }
}

TEST(Candidates, AreThinnedToTheStep) {
  const PriceTable t = table_of(4096, 5, 0.1);
  size_t last = SIZE_MAX;
  for (const double step : {0.0, 0.02, 0.1, 1.0}) {
    const size_t n = candidates(t, 1024, 0, step).size();
    EXPECT_LE(n, last);
    last = n;
    // For every group size about 6 bits a weight / step, and the uniform layouts.
    if (step > 0) {
      EXPECT_LE(static_cast<double>(n), 3 * (6 / step + 7));
    }
  }
  EXPECT_GT(candidates(t, 1024, 0).size(), 150u);
}

TEST(Candidates, SurviveZeroAndRisingPrices) {
  PriceTable zero = table_of(320, 1, 0);
  for (auto& width : zero.errors) {
    for (auto& size : width) std::fill(size.begin(), size.end(), 0.0);
  }
  EXPECT_GE(candidates(zero, 32, 0).size(), 15u);
  PriceTable rising = table_of(320, 1, 0);
  std::reverse(rising.errors.begin(), rising.errors.end());
  for (const Candidate& c : candidates(rising, 32, 0)) EXPECT_NO_THROW(c.layout.validate(320, "x"));
}

TEST(Candidates, AreTheSameEachTime) {
  const PriceTable t = table_of(1536, 9, 0.2);
  const std::vector<Candidate> a = candidates(t, 576, 0), b = candidates(t, 576, 0);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].layout, b[i].layout);
}

}  // namespace
}  // namespace bw::codec
