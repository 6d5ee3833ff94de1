#include "backend/testing.h"

#include <algorithm>

#include "bitwright/error.h"

namespace bw::backend {
namespace {

double log_sum(std::span<const float> x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const float v : x) sum += std::exp(v - top);
  return top + std::log(sum);
}

TEST(TokenNll, MatchesTheReference) {
  const auto device = make_cpu_backend(2);
  for_each_simd_target([&] {
    for (const size_t n : {1, 2, 17, 511, 512, 513, 5000}) {
      const size_t rows = 3;
      const auto x = random_floats(rows * n, n, 20.0f);
      std::vector<int32_t> targets = {0, static_cast<int32_t>(n - 1), static_cast<int32_t>(n / 2)};
      const Tensor out = device->allocate(rows, 1);
      device->token_nll(tensor_of(*device, x, rows, n, 1), index_tensor(*device, targets), out);
      const auto got = values_of(*device, out);
      for (size_t r = 0; r < rows; ++r) {
        const auto row = std::span(x).subspan(r * n, n);
        EXPECT_NEAR(got[r], log_sum(row) - row[static_cast<size_t>(targets[r])], 2e-6 * (1 + std::abs(got[r]))) << n;
      }
    }
  });
}

TEST(CompareLogits, MatchesTheReference) {
  const auto device = make_cpu_backend(2);
  for_each_simd_target([&] {
    for (const size_t n : {1, 2, 17, 513, 5000}) {
      for (const float noise : {0.0f, 0.01f, 1.0f}) {
        const size_t rows = 4;
        auto p = random_floats(rows * n, n, 10.0f);
        auto q = p;
        const auto change = random_floats(rows * n, n + 1, noise);
        for (size_t i = 0; i < q.size(); ++i) q[i] += change[i] + 3.0f;
        const std::vector<int32_t> targets(rows, static_cast<int32_t>(n - 1));
        const Tensor out = device->allocate(rows, 4);
        device->compare_logits(tensor_of(*device, p, rows, n), tensor_of(*device, q, rows, n, 1),
                               index_tensor(*device, targets), out);
        const auto got = values_of(*device, out);
        for (size_t r = 0; r < rows; ++r) {
          const auto a = std::span(p).subspan(r * n, n), b = std::span(q).subspan(r * n, n);
          const double la = log_sum(a), lb = log_sum(b);
          double kld = 0;
          for (size_t i = 0; i < n; ++i) kld += std::exp(a[i] - la) * ((a[i] - la) - (b[i] - lb));
          EXPECT_NEAR(got[4 * r], kld, 1e-6 + 1e-5 * kld) << n << " " << noise;
          EXPECT_NEAR(got[4 * r + 1], la - a[n - 1], 1e-5);
          EXPECT_NEAR(got[4 * r + 2], lb - b[n - 1], 1e-5);
          const auto top = [](std::span<const float> x) { return std::max_element(x.begin(), x.end()) - x.begin(); };
          EXPECT_EQ(got[4 * r + 3], top(a) == top(b) ? 1.0f : 0.0f);
        }
      }
    }
  });
}

TEST(CompareLogits, OfARowWithItselfIsNothing) {
  const auto device = make_cpu_backend(1);
  const Tensor x = tensor_of(*device, random_floats(1000, 1, 30.0f), 1, 1000), out = device->allocate(1, 4);
  device->compare_logits(x, x, index_tensor(*device, std::vector<int32_t>{5}), out);
  const auto got = values_of(*device, out);
  EXPECT_EQ(got[0], 0.0f);
  EXPECT_EQ(got[1], got[2]);
  EXPECT_EQ(got[3], 1.0f);
}

// A value that is no number anywhere in a row, also far from the target, must show in what comes out.
TEST(Logits, WhatIsNotFiniteStaysSo) {
  const auto device = make_cpu_backend(1);
  for_each_simd_target([&] {
    for (const size_t n : {2, 17, 513, 1000}) {
      for (const float bad : {NAN, INFINITY}) {
        for (const size_t at : {size_t{0}, n / 2, n - 2}) {
          const auto good = random_floats(n, n, 5.0f);
          auto spoiled = good;
          spoiled[at] = bad;
          const Tensor p = tensor_of(*device, good, 1, n), q = tensor_of(*device, spoiled, 1, n);
          const Tensor target = index_tensor(*device, std::vector<int32_t>{static_cast<int32_t>(n - 1)});
          const Tensor nll = device->allocate(1, 1), both = device->allocate(1, 4);
          device->token_nll(q, target, nll);
          EXPECT_FALSE(std::isfinite(values_of(*device, nll)[0])) << n << " " << at << " " << bad;
          device->compare_logits(p, q, target, both);
          auto got = values_of(*device, both);
          EXPECT_FALSE(std::isfinite(got[0])) << n << " " << at << " " << bad;
          EXPECT_TRUE(std::isfinite(got[1]) && !std::isfinite(got[2])) << n << " " << at << " " << bad;
          device->compare_logits(q, p, target, both);
          got = values_of(*device, both);
          EXPECT_FALSE(std::isfinite(got[0])) << n << " " << at << " " << bad;
          EXPECT_TRUE(!std::isfinite(got[1]) && std::isfinite(got[2])) << n << " " << at << " " << bad;
        }
      }
    }
  });
}

TEST(TokenNll, RefusesATargetOutsideTheVocabulary) {
  const auto device = make_cpu_backend(2);
  const Tensor x = tensor_of(*device, random_floats(4, 1), 1, 4), out = device->allocate(1, 1);
  EXPECT_THROW(device->token_nll(x, index_tensor(*device, std::vector<int32_t>{4}), out), Error);
  EXPECT_THROW(device->token_nll(x, index_tensor(*device, std::vector<int32_t>{-1}), out), Error);
}

}  // namespace
}  // namespace bw::backend
