#include "quant/held_out.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "quant/host_side.h"
#include "quant/random_matrix.h"

namespace bw::quant {
namespace {

using backend::Precision;

constexpr size_t kIn = 96, kTokens = 192, kBatch = 64, kUsed = 144;  // in the Hessian
constexpr float kTestDamping = 0.001f;

// Tokens of few directions that stand out of noise, and what each counts.
struct Tokens {
  Matrix<float> x, gains;
};

Tokens make_tokens(size_t count, uint64_t seed) {
  Rng mixing(99), rng(seed);
  Matrix<double> mix(kIn, kIn);
  for (double& m : mix.span()) m = normal(mixing);
  Tokens tokens{Matrix<float>(count, kIn), Matrix<float>(count, 1)};
  for (size_t t = 0; t < count; ++t) {
    std::vector<double> x(kIn, 0.0);
    for (size_t k = 0; k < kIn; ++k) {
      const double size = normal(rng) * std::exp(-static_cast<double>(k) / 16);
      for (size_t i = 0; i < kIn; ++i) x[i] += size * mix(k, i);
    }
    for (size_t i = 0; i < kIn; ++i) tokens.x(t, i) = static_cast<float>(x[i]);
    tokens.gains(t, 0) = static_cast<float>(std::exp(normal(rng)));
  }
  return tokens;
}

HeldOutTokens collect(backend::Backend& device, const Tokens& tokens, size_t most) {
  HeldOutTokens sums(device, 2, tokens.x.rows(), kIn, most, Precision::kF32);
  for (size_t first = 0; first < tokens.x.rows(); first += kBatch) {
    const size_t count = std::min(kBatch, tokens.x.rows() - first);
    const backend::Tensor x = upload(device, tokens.x).rows_slice(first, count);
    sums.add(0, x, upload(device, std::vector<float>(count, 1.0f)));  // another linear, which counts all the same
    sums.add(1, x, upload(device, tokens.gains).rows_slice(first, count));
  }
  return sums;
}

// For each row, Σ gain (y_r / u_rr)² over the tokens.
std::vector<double> costs_on(const Tokens& tokens, const HostFactor& f) {
  std::vector<double> costs(kIn, 0.0);
  for (size_t t = 0; t < tokens.x.rows(); ++t) {
    for (size_t r = 0; r < kIn; ++r) {
      double y = 0;
      for (size_t j = r; j < kIn; ++j) y += double{f.u(r, j)} * tokens.x(t, f.input(j));
      costs[r] += tokens.gains(t, 0) * y * y * f.weights[r];
    }
  }
  return costs;
}

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }
double sum(const Matrix<float>& m) { return std::accumulate(m.span().begin(), m.span().end(), 0.0); }

class HeldOutOn : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, HeldOutOn, testing::ValuesIn(test::kDevices));

TEST_P(HeldOutOn, TheHessianIsOfThreeQuartersOfTheTokens) {
  const Tokens tokens = make_tokens(kTokens, 1);
  const HeldOutTokens sums = collect(*device_, tokens, 1000);
  const Matrix<float> h = read_matrix<float>(*device_, sums.hessian(1));
  for (size_t i = 0; i < kIn; i += 7) {
    for (size_t j = i; j < kIn; j += 5) {
      double wanted = 0;
      for (size_t t = 0; t < kTokens; ++t) {
        if (t % kBatch < kBatch * 3 / 4) wanted += double{tokens.gains(t, 0)} * tokens.x(t, i) * tokens.x(t, j);
      }
      EXPECT_NEAR(h(i, j), wanted, 1e-4 * h(i, i) + 1e-3);
    }
  }
}

// The reason for all this: on tokens of the factor itself costs look several times smaller than they are.
TEST_P(HeldOutOn, WeightsTellWhatErrorsCostOnOtherTokens) {
  const Tokens others = make_tokens(8000, 77);
  double estimate = 0, own = 0, truth = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const Tokens tokens = make_tokens(kTokens, seed);
    const HeldOutTokens sums = collect(*device_, tokens, 1000);
    const Factor factor = factorize(*device_, sums.hessian(1), kTestDamping);
    const backend::Tensor gains = upload(*device_, tokens.gains);
    const HostFactor host = read_factor(*device_, factor, kTestDamping, "test");
    const std::vector<float> weights = device_->read<float>(sums.weights(1, factor, gains, kUsed), "test");
    const double scale = sum(tokens.gains) / sum(others.gains);
    truth += scale * sum(costs_on(others, host));
    estimate += std::accumulate(weights.begin(), weights.end(), 0.0);
    own += std::accumulate(host.weights.begin(), host.weights.end(), 0.0) * 4 / 3;
  }
  EXPECT_NEAR(estimate, truth, 0.2 * truth);
  EXPECT_LT(own, 0.7 * truth);
}

// What a factor of sixteen times as many tokens leaves of others is told from the few.
TEST_P(HeldOutOn, WeightsTellWhatErrorsWillCostOnceThereAreMoreTokens) {
  constexpr size_t kMore = 16;
  const Tokens others = make_tokens(8000, 77), many = make_tokens(kMore * kTokens, 5);
  const double scale = sum(many.gains) / sum(others.gains) / kMore;
  double estimate = 0, as_they_are = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const Tokens tokens = make_tokens(kTokens, seed);
    const HeldOutTokens sums = collect(*device_, tokens, 1000);
    const Factor factor = factorize(*device_, sums.hessian(1), kTestDamping);
    const backend::Tensor gains = upload(*device_, tokens.gains);
    const auto total = [&](size_t rounding_tokens) {
      const auto weights = device_->read<float>(sums.weights(1, factor, gains, rounding_tokens), "test");
      return std::accumulate(weights.begin(), weights.end(), 0.0) / 8;
    };
    estimate += total(kMore * kTokens);
    as_they_are += total(kUsed);
  }
  const HeldOutTokens sums = collect(*device_, many, 0);
  const HostFactor host =
      read_factor(*device_, factorize(*device_, sums.hessian(1), kTestDamping), kTestDamping, "test");
  const double truth = scale * sum(costs_on(others, host));
  EXPECT_NEAR(estimate, truth, 0.1 * truth);
  EXPECT_GT(as_they_are, 1.25 * truth);
}

TEST_P(HeldOutOn, ASampleOfThemTellsTheSame) {
  const Tokens tokens = make_tokens(2048, 3);
  const HeldOutTokens all = collect(*device_, tokens, 4096), some = collect(*device_, tokens, 256);
  const backend::Tensor gains = upload(*device_, tokens.gains);
  const Factor factor = factorize(*device_, all.hessian(1), kTestDamping);
  const std::vector<float> a = device_->read<float>(all.weights(1, factor, gains, 2048), "test");
  const std::vector<float> b = device_->read<float>(some.weights(1, factor, gains, 2048), "test");
  EXPECT_NE(a, b);
  for (size_t r = 0; r < kIn; ++r) EXPECT_NEAR(b[r], a[r], 0.3 * a[r]) << r;
}

TEST_P(HeldOutOn, TooFewTokensToHoldAnyOutAreAllUsed) {
  const Tokens tokens = make_tokens(3, 4);
  const HeldOutTokens sums = collect(*device_, tokens, 1000);
  const backend::Tensor gains = upload(*device_, tokens.gains);
  const Factor factor = factorize(*device_, sums.hessian(1), kTestDamping);
  EXPECT_EQ(device_->read<float>(sums.weights(1, factor, gains, 3), "test"),
            device_->read<float>(factor.weights, "test"));
  const Matrix<float> h = read_matrix<float>(*device_, sums.hessian(1));
  double wanted = 0;
  for (size_t t = 0; t < 3; ++t) wanted += double{tokens.gains(t, 0)} * tokens.x(t, 0) * tokens.x(t, 0);
  EXPECT_NEAR(h(0, 0), wanted, 1e-5 * wanted);
}

}  // namespace
}  // namespace bw::quant
