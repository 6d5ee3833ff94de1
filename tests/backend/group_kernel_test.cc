#include "backend/cpu/group_kernel.h"

#include <array>
#include <limits>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "backend/cases/rounding.h"
#include "backend/scale_grid.h"

namespace bw::backend::cpu {
namespace {

using conformance::normal;
using conformance::Spread;

constexpr int kBitWidths[] = {8, 6, 5, 4, 3, 2};

Matrix<float> random_matrix(size_t rows, size_t cols, uint64_t seed, float size, Spread spread = Spread::kGaussian) {
  Matrix<float> m(rows, cols);
  const std::vector<float> values = conformance::spread_floats(rows, cols, seed, size, spread);
  std::copy(values.begin(), values.end(), m.span().begin());
  return m;
}

constexpr float kTrials[] = {1.08f, 1.0f, 0.93f, 0.86f, 0.79f, 0.72f, 0.65f, 0.58f, 0.51f, 0.44f, 0.37f};

// Runs `body` once on every instruction set that the processor has.
template <typename Body>
void on_every_target(const Body& body) {
  const std::vector<int64_t> targets = supported_targets();
  ASSERT_FALSE(targets.empty());
  for (const int64_t target : targets) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
    if (testing::Test::HasFatalFailure()) break;
  }
  hwy::SetSupportedTargetsForTest(0);
}

std::vector<float> random_weights(size_t rows, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> w(rows);
  for (float& x : w) x = static_cast<float>(std::exp(1.5 * normal(rng)));
  return w;
}

double level_of(float x, float scale, int bits) {
  const double levels = 1 << (bits - 1);
  return scale > 0 ? std::clamp(std::nearbyint(static_cast<double>(x * (1.0f / scale))), -levels, levels - 1) : 0;
}

double column_error(MatrixView<const float> w, size_t c, const std::vector<float>& weights, float scale, int bits) {
  double sum = 0;
  for (size_t r = 0; r < w.rows; ++r) {
    const double e = w(r, c) - level_of(w(r, c), scale, bits) * static_cast<double>(scale);
    sum += e * e * weights[r];
  }
  return sum;
}

float column_top(MatrixView<const float> w, size_t c) {
  float top = 0;
  for (size_t r = 0; r < w.rows; ++r) top = std::max(top, std::abs(w(r, c)));
  return top;
}

// Panels of every interesting shape: small and large weights, a column of zeros, columns of unlike size side by side.
struct Panel {
  Matrix<float> w;
  std::vector<float> weights;
  int bits;
};

template <typename Body>
void for_panels(const Body& body) {
  constexpr float kSizes[] = {1e-6f, 0.02f, 300.0f};
  uint64_t seed = 100;
  for (const size_t rows : {32, 48, 64, 96, 128}) {
    for (const size_t cols : {32, 64, 96}) {
      for (const int bits : kBitWidths) {
        const float size = kSizes[++seed % 7 % 3];
        Panel p{random_matrix(rows, cols, seed, size), random_weights(rows, seed), bits};
        for (size_t r = 0; r < rows; ++r) {
          p.w(r, 3) = 0;
          p.w(r, 17) *= 40;
          p.w(r, 30) *= 0.01f;
        }
        SCOPED_TRACE(testing::Message() << rows << " x " << cols << ", " << bits << " bits, size " << size);
        body(p);
      }
    }
  }
}

TEST(GroupKernel, FindScalesTakesTheBestTrial) {
  on_every_target([] {
    for_panels([](const Panel& p) {
      std::vector<float> scales(p.w.cols(), -1);
      find_scales(p.w.view(), p.weights.data(), p.bits, scales.data());
      EXPECT_EQ(scales[3], 0);
      for (size_t c = 0; c < p.w.cols(); ++c) {
        const float unit = column_top(p.w.view(), c) * (1.0f / static_cast<float>(1 << (p.bits - 1)));
        double best = std::numeric_limits<double>::infinity();
        bool is_trial = false;
        for (const float t : kTrials) {
          best = std::min(best, column_error(p.w.view(), c, p.weights, unit * t, p.bits));
          is_trial |= scales[c] == unit * t;
        }
        EXPECT_TRUE(is_trial) << c << " " << scales[c];
        ASSERT_LE(column_error(p.w.view(), c, p.weights, scales[c], p.bits), best * (1 + 1e-4) + 1e-30)
            << "column " << c;
      }
    });
  });
}

TEST(GroupKernel, FindCodesTakesTheBestOfAllSixteen) {
  on_every_target([] {
    for_panels([](const Panel& p) {
      const float top = column_top(p.w.view(), 17);
      const auto grid = code_scales(scale_max_for(top / static_cast<float>(1 << (p.bits - 1))));
      std::vector<uint8_t> codes(p.w.cols(), 99), again(p.w.cols(), 99);
      std::vector<double> errors(p.w.rows(), 1.0);
      find_codes(p.w.view(), p.weights.data(), p.bits, grid.data(), codes.data(), errors.data());
      find_codes(p.w.view(), p.weights.data(), p.bits, grid.data(), again.data(), nullptr);
      EXPECT_EQ(codes, again);
      EXPECT_EQ(codes[3], 0);
      double total = 0, all_rows = 0;
      for (size_t c = 0; c < p.w.cols(); ++c) {
        ASSERT_LT(codes[c], 16);
        const double found = column_error(p.w.view(), c, p.weights, grid[codes[c]], p.bits);
        double best = std::numeric_limits<double>::infinity();
        for (const float s : grid) best = std::min(best, column_error(p.w.view(), c, p.weights, s, p.bits));
        ASSERT_LE(found, best * (1 + 1e-4) + 1e-30) << "column " << c << " code " << int{codes[c]};
        total += found;
      }
      for (const double e : errors) all_rows += e - 1.0;  // errors are added to what is there
      ASSERT_NEAR(all_rows, total, 1e-4 * total + 1e-12);
    });
  });
}

TEST(GroupKernel, FindScalesKeepsStoredValuesFinite) {
  on_every_target([] {
    for (const int bits : kBitWidths) {
      const Matrix<float> w = random_matrix(64, 32, 4, 60000);
      const std::vector<float> weights(64, 1.0f);
      std::vector<float> scales(32);
      find_scales(w.view(), weights.data(), bits, scales.data());
      const float levels = static_cast<float>(1 << (bits - 1));
      for (const float s : scales) EXPECT_LE(s * levels, 65504);
      const Half top = scale_max_for(*std::max_element(scales.begin(), scales.end()));
      EXPECT_TRUE(std::isfinite(round_to_half(code_scales(top).back() * -levels)));
    }
  });
}

// A column whose best scale lies far from max|w|: the search must not skip it.
TEST(GroupKernel, FindCodesLosesNothingOnOddColumns) {
  on_every_target([] {
    for (const Spread spread : {Spread::kGaussian, Spread::kLaplace, Spread::kHeavyTailed, Spread::kOneOutlier}) {
      for (const int bits : kBitWidths) {
        for (const size_t rows : {32, 128}) {
          const Matrix<float> w = random_matrix(rows, 256, 9 + rows, 0.02f, spread);
          const std::vector<float> weights = random_weights(rows, 5);
          std::vector<float> wanted(w.cols());
          find_scales(w.view(), weights.data(), bits, wanted.data());
          const auto grid = code_scales(scale_max_for(*std::max_element(wanted.begin(), wanted.end())));
          std::vector<uint8_t> codes(w.cols());
          find_codes(w.view(), weights.data(), bits, grid.data(), codes.data(), nullptr);
          double found = 0, best = 0, worst = 1;
          for (size_t c = 0; c < w.cols(); ++c) {
            double least = std::numeric_limits<double>::infinity();
            for (const float s : grid) least = std::min(least, column_error(w.view(), c, weights, s, bits));
            const double mine = column_error(w.view(), c, weights, grid[codes[c]], bits);
            found += mine;
            best += least;
            worst = std::max(worst, mine / least);
          }
          EXPECT_LE(found, best * 1.00001) << "spread " << static_cast<int>(spread) << ", " << bits << " bits, " << rows
                                           << " rows; worst column " << worst;
        }
      }
    }
  });
}

// The plain loop that round_and_feed vectorises.
struct Rounded {
  Matrix<float> w, e;
  Matrix<uint8_t> q;
  double error = 0;
};

Rounded round_by_hand(const Matrix<float>& start, size_t group_rows, MatrixView<const float> u, int bits,
                      const std::vector<float>& scales) {
  Rounded r{start.clone(), Matrix<float>(group_rows, start.cols()), Matrix<uint8_t>(group_rows, start.cols()), 0};
  for (size_t c = 0; c < start.cols(); ++c) {
    for (size_t i = 0; i < group_rows; ++i) {
      const double level = level_of(r.w(i, c), scales[c], bits);
      const double stored = round_to_half(static_cast<float>(level) * scales[c]);
      r.q(i, c) = static_cast<uint8_t>(level + (1 << (bits - 1)));
      r.e(i, c) = static_cast<float>((r.w(i, c) - stored) / u(i, i));
      r.error += static_cast<double>(r.e(i, c)) * r.e(i, c);
      for (size_t j = i + 1; j < start.rows(); ++j) r.w(j, c) -= r.e(i, c) * u(i, j);
    }
  }
  return r;
}

Matrix<float> random_factor(size_t n, uint64_t seed) {
  Matrix<float> u = random_matrix(n, n, seed, 0.05f);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) u(i, j) = std::numeric_limits<float>::quiet_NaN();  // must never be read
    u(i, i) = 0.5f + std::abs(u(i, i));
  }
  return u;
}

TEST(GroupKernel, RoundAndFeedEqualsThePlainLoop) {
  on_every_target([] {
    uint64_t seed = 0;
    for (const size_t group_rows : {1, 32, 48, 96, 128}) {
      for (const size_t rest : {0, 1, 64}) {
        for (const int bits : kBitWidths) {
          const size_t cols = 32 + 32 * (++seed % 3);
          Matrix<float> w = random_matrix(group_rows + rest, cols, seed, 0.05f);
          const Matrix<float> u = random_factor(group_rows + rest, seed);
          std::vector<float> scales(cols);
          for (size_t c = 0; c < cols; ++c)
            scales[c] =
                round_to_half(0.12f / static_cast<float>(1 << (bits - 1)) * (1 + 0.02f * static_cast<float>(c)));
          scales[5] = 0;
          const Rounded expected = round_by_hand(w, group_rows, u.view(), bits, scales);
          Matrix<float> e(group_rows, cols);
          Matrix<uint8_t> q(group_rows, cols);
          double error = 2;
          round_and_feed(w.view(), group_rows, u.view(), bits, scales.data(), q.view(), e.view(), &error);
          SCOPED_TRACE(testing::Message() << group_rows << " + " << rest << " rows, " << bits << " bits");
          // A value within float rounding of a tie may go either way, and then the column goes its own way: few may.
          size_t other = 0;
          for (size_t c = 0; c < cols; ++c) {
            bool same = true;
            for (size_t i = 0; i < group_rows && same; ++i) same = q(i, c) == expected.q(i, c);
            if (!same) {
              ++other;
              continue;
            }
            for (size_t i = 0; i < group_rows; ++i) ASSERT_NEAR(e(i, c), expected.e(i, c), 1e-5) << i << "," << c;
            for (size_t j = group_rows; j < w.rows(); ++j)
              ASSERT_NEAR(w(j, c), expected.w(j, c), 1e-5) << j << "," << c;
          }
          EXPECT_LE(other, 2 + cols / 16);
          EXPECT_NEAR(error - 2, expected.error, 0.02 * expected.error + 1e-6);
        }
      }
    }
  });
}

// The stored value is a half: with no correction to feed, the error tells it exactly, on every instruction set.
TEST(GroupKernel, RoundAndFeedRoundsTheProductToHalf) {
  Matrix<float> u(128, 128, true);
  for (size_t i = 0; i < 128; ++i) u(i, i) = 1;
  on_every_target([&] {
    for (const int bits : kBitWidths) {
      for (const float size : {1e-6f, 3e-5f, 1e-3f, 0.7f, 1000.0f, 40000.0f}) {
        Matrix<float> w = random_matrix(128, 64, static_cast<uint64_t>(bits), size);
        for (float& x : w.span()) x = std::clamp(x, -65504.0f, 65504.0f);
        const Matrix<float> before = w.clone();
        const auto grid =
            code_scales(scale_max_for(std::min(4 * size, 65504.0f) / static_cast<float>(1 << (bits - 1))));
        std::vector<float> scales(64);
        for (size_t c = 0; c < 64; ++c) scales[c] = grid[c % 16];
        Matrix<float> e(128, 64);
        Matrix<uint8_t> q(128, 64);
        double error = 0;
        round_and_feed(w.view(), 128, u.view(), bits, scales.data(), q.view(), e.view(), &error);
        for (size_t r = 0; r < 128; ++r) {
          for (size_t c = 0; c < 64; ++c) {
            const float stored = round_to_half(static_cast<float>(q(r, c) - (1 << (bits - 1))) * scales[c]);
            ASSERT_TRUE(std::isfinite(stored));
            ASSERT_EQ(e(r, c), before(r, c) - stored) << bits << " bits, size " << size << " at " << r << "," << c;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace bw::backend::cpu
