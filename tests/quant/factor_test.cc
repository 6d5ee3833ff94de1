#include "quant/factor.h"

#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "bitwright/error.h"
#include "quant/random_matrix.h"

namespace bw::quant {
namespace {

std::unique_ptr<backend::Backend> host(size_t threads = 2) { return backend::make_cpu_backend(threads); }

// Lower triangle made unusable: only the upper one may be read.
Matrix<float> upper_only(Matrix<float> h) {
  for (size_t i = 0; i < h.rows(); ++i) {
    for (size_t j = 0; j < i; ++j) h(i, j) = std::numeric_limits<float>::quiet_NaN();
  }
  return h;
}

bool is_permutation_of_all(const std::vector<uint32_t>& order) {
  std::vector<uint32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (uint32_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != i) return false;
  }
  return true;
}

// Largest element of |H' Uᵀ U - 1| for the damped H' in activation order, in double.
double inverse_error(const Factor& f, MatrixView<const float> h) {
  const size_t n = h.rows;
  const double mean = mean_diagonal(h), added = static_cast<double>(f.damping) * mean;
  std::vector<double> inverse(n * n, 0.0);
  for (size_t k = 0; k < n; ++k) {
    for (size_t i = k; i < n; ++i) {
      for (size_t j = k; j < n; ++j) inverse[i * n + j] += static_cast<double>(f.u(k, i)) * f.u(k, j);
    }
  }
  double worst = 0;
  std::vector<double> row(n);
  for (size_t i = 0; i < n; ++i) {
    std::fill(row.begin(), row.end(), 0.0);
    for (size_t k = 0; k < n; ++k) {
      const uint32_t a = std::min(f.order[i], f.order[k]), b = std::max(f.order[i], f.order[k]);
      double value = h(a, b);
      if (i == k) value = (value == 0 ? mean : value) + added;
      for (size_t j = 0; j < n; ++j) row[j] += value * inverse[k * n + j];
    }
    for (size_t j = 0; j < n; ++j) worst = std::max(worst, std::abs(row[j] - (i == j)));
  }
  return worst;
}

void expect_valid(const Factor& f, MatrixView<const float> h) {
  const size_t n = h.rows;
  ASSERT_EQ(f.order.size(), n);
  ASSERT_EQ(f.weights.size(), n);
  ASSERT_EQ(f.u.rows(), n);
  ASSERT_EQ(f.u.cols(), n);
  EXPECT_TRUE(is_permutation_of_all(f.order));
  const double mean = mean_diagonal(h);
  for (size_t i = 0; i < n; ++i) {
    ASSERT_GT(f.u(i, i), 0) << i;
    EXPECT_NEAR(f.weights[i] * f.u(i, i) * f.u(i, i), 1, 1e-5);
    for (size_t j = 0; j < i; ++j) ASSERT_EQ(f.u(i, j), 0) << i << "," << j;
    for (size_t j = i; j < n; ++j) ASSERT_TRUE(std::isfinite(f.u(i, j))) << i << "," << j;
    if (i == 0 || f.identity) continue;
    const auto diagonal = [&](size_t k) { return h(f.order[k], f.order[k]) == 0 ? mean : h(f.order[k], f.order[k]); };
    ASSERT_GE(diagonal(i - 1) * (1 + 1e-6), diagonal(i)) << "the order must fall";
  }
}

TEST(Factor, IsTheFactorOfTheInverse) {
  for (const size_t n : {1, 2, 31, 32, 127, 128, 129, 256, 300, 1100}) {
    SCOPED_TRACE(n);
    const Matrix<float> h = upper_only(random_hessian(n, 3 * n + 5, n));
    const Matrix<float> before = h.clone();
    const Factor f = factorize(*host(), h.view(), 0.01f, "layer");
    EXPECT_FALSE(f.identity);
    EXPECT_EQ(f.damping, 0.01f);
    EXPECT_EQ(f.dead, 0u);
    expect_valid(f, h.view());
    EXPECT_LT(inverse_error(f, h.view()), 2e-3);
    EXPECT_EQ(std::memcmp(h.data(), before.data(), n * n * sizeof(float)), 0) << "the Hessian must not change";
  }
}

TEST(Factor, WorksInAnyScale) {
  for (const float size : {1e-9f, 1e-4f, 1e4f, 1e8f}) {
    SCOPED_TRACE(size);
    const Matrix<float> h = random_hessian(96, 300, 8, size);
    const Factor f = factorize(*host(), h.view(), 0.01f, "layer");
    EXPECT_FALSE(f.identity);
    expect_valid(f, h.view());
    EXPECT_LT(inverse_error(f, h.view()), 2e-3);
  }
}

TEST(Factor, DeadChannelsTakeTheMean) {
  Matrix<float> h = random_hessian(160, 500, 5);
  for (const size_t dead : {0, 7, 159}) {
    for (size_t i = 0; i < 160; ++i) h(i, dead) = h(dead, i) = 0;
  }
  const Factor f = factorize(*host(), h.view(), 0.05f, "layer");
  EXPECT_EQ(f.dead, 3u);
  EXPECT_FALSE(f.identity);
  expect_valid(f, h.view());
  EXPECT_LT(inverse_error(f, h.view()), 2e-3);
}

TEST(Factor, ZeroHessianIsAllDead) {
  for (const size_t n : {1, 33, 200}) {
    const Matrix<float> h(n, n, true);
    const Factor f = factorize(*host(), h.view(), 0.01f, "layer");
    EXPECT_EQ(f.dead, n);
    EXPECT_FALSE(f.identity);
    expect_valid(f, h.view());
    for (size_t i = 0; i < n; ++i) EXPECT_NEAR(f.weights[i], 1.01, 1e-4);
  }
}

TEST(Factor, EqualChannelsAndFewTokensAreDampedUntilTheyFactor) {
  for (const size_t n : {64, 200}) {
    for (const size_t tokens : {size_t{1}, n / 3}) {
      Matrix<float> h = random_hessian(n, tokens, n + tokens);
      for (size_t i = 0; i < n; ++i) h(i, 9) = h(i, 5);
      for (size_t i = 0; i < n; ++i) h(9, i) = h(5, i);
      SCOPED_TRACE(testing::Message() << n << " inputs, " << tokens << " tokens");
      const Factor f = factorize(*host(), h.view(), 1e-9f, "layer");
      expect_valid(f, h.view());
      EXPECT_TRUE(f.identity || f.damping > 1e-9f) << f.damping;
      const Factor damped = factorize(*host(), h.view(), 0.01f, "layer");
      EXPECT_FALSE(damped.identity);
      expect_valid(damped, h.view());
      EXPECT_LT(inverse_error(damped, h.view()), 0.02);
    }
  }
}

TEST(Factor, AnIndefiniteMatrixGivesTheIdentity) {
  Matrix<float> h(40, 40, true);
  for (size_t i = 0; i < 40; ++i) h(i, i) = static_cast<float>(i + 1);
  h(0, 1) = h(1, 0) = 1e6f;
  const Factor f = factorize(*host(), h.view(), 0.01f, "layer");
  EXPECT_TRUE(f.identity);
  expect_valid(f, h.view());
  for (uint32_t i = 0; i < 40; ++i) {
    EXPECT_EQ(f.order[i], i);
    EXPECT_FLOAT_EQ(f.weights[i], static_cast<float>(i + 1));
  }
}

TEST(Factor, RefusesWhatIsNotFiniteAndNamesIt) {
  const auto expect_refused = [](const Matrix<float>& h) {
    try {
      factorize(*host(), h.view(), 0.01f, "model.layers.3.q_proj");
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kNumeric);
      EXPECT_EQ(std::string(e.what()).rfind("model.layers.3.q_proj: ", 0), 0u) << e.what();
    }
  };
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const std::pair<size_t, size_t> at : {std::pair{0, 0}, {149, 149}, {3, 140}, {0, 1}, {148, 149}}) {
      Matrix<float> h = random_hessian(150, 400, 2);
      h(at.first, at.second) = bad;
      SCOPED_TRACE(testing::Message() << bad << " at " << at.first << "," << at.second);
      expect_refused(h);
    }
  }
  Matrix<float> h = random_hessian(10, 40, 2);
  h(4, 4) = -1;
  expect_refused(h);
}

TEST(Factor, IsTheSameAtAnyNumberOfThreads) {
  const Matrix<float> h = random_hessian(300, 700, 6);
  const Factor one = factorize(*host(1), h.view(), 0.02f, "layer");
  for (const size_t threads : {2, 3}) {
    const Factor other = factorize(*host(threads), h.view(), 0.02f, "layer");
    EXPECT_EQ(one.order, other.order);
    EXPECT_EQ(std::memcmp(one.u.data(), other.u.data(), one.u.span().size_bytes()), 0) << threads;
    EXPECT_EQ(one.weights, other.weights);
  }
}

}  // namespace
}  // namespace bw::quant
