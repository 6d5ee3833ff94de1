#include "quant/factor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "bitwright/error.h"
#include "quant/host_side.h"
#include "quant/random_matrix.h"

namespace bw::quant {
namespace {

// Lower triangle made unusable: only the upper one may be read.
Matrix<float> upper_only(Matrix<float> h) {
  for (size_t i = 0; i < h.rows(); ++i) {
    for (size_t j = 0; j < i; ++j) h(i, j) = std::numeric_limits<float>::quiet_NaN();
  }
  return h;
}

bool is_permutation_of_all(const std::vector<int32_t>& order) {
  std::vector<int32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<int32_t>(i)) return false;
  }
  return true;
}

// Largest element of |H' Uᵀ U - 1| for the damped H' in activation order, in double.
double inverse_error(const HostFactor& f, MatrixView<const float> h) {
  const size_t n = h.rows;
  const double mean = mean_diagonal(h), added = static_cast<double>(f.report.damping) * mean;
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
      const uint32_t a = std::min(f.input(i), f.input(k)), b = std::max(f.input(i), f.input(k));
      double value = h(a, b);
      if (i == k) value = (value == 0 ? mean : value) + added;
      for (size_t j = 0; j < n; ++j) row[j] += value * inverse[k * n + j];
    }
    for (size_t j = 0; j < n; ++j) worst = std::max(worst, std::abs(row[j] - (i == j)));
  }
  return worst;
}

void expect_valid(const HostFactor& f, MatrixView<const float> h) {
  const size_t n = h.rows;
  ASSERT_EQ(f.order.size(), n);
  ASSERT_EQ(f.weights.size(), n);
  ASSERT_EQ(f.u.rows(), n);
  ASSERT_EQ(f.u.cols(), n);
  ASSERT_TRUE(is_permutation_of_all(f.order));
  const double mean = mean_diagonal(h);
  for (size_t i = 0; i < n; ++i) {
    ASSERT_GT(f.u(i, i), 0) << i;
    EXPECT_NEAR(f.weights[i] * f.u(i, i) * f.u(i, i), 1, 1e-5);
    for (size_t j = 0; j < i; ++j) ASSERT_EQ(f.u(i, j), 0) << i << "," << j;
    for (size_t j = i; j < n; ++j) ASSERT_TRUE(std::isfinite(f.u(i, j))) << i << "," << j;
    if (i == 0 || f.report.identity) continue;
    const auto diagonal = [&](size_t k) {
      const float value = h(f.input(k), f.input(k));
      return value == 0 ? mean : value;
    };
    ASSERT_GE(diagonal(i - 1) * (1 + 1e-6), diagonal(i)) << "the order must fall";
  }
}

class FactorOn : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, FactorOn, testing::ValuesIn(test::kDevices));

TEST_P(FactorOn, IsTheFactorOfTheInverse) {
  for (const size_t n : {1, 2, 31, 32, 127, 128, 129, 256, 300, 1100}) {
    if (n > 300 && device_->name() != "cpu") continue;  // the reference takes seconds
    SCOPED_TRACE(n);
    const Matrix<float> h = upper_only(random_hessian(n, 3 * n + 5, n));
    const backend::Tensor on_device = upload(*device_, h);
    const HostFactor f = read_factor(*device_, factorize(*device_, on_device, 0.01f), 0.01f, "layer");
    EXPECT_FALSE(f.report.identity);
    EXPECT_EQ(f.report.damping, 0.01f);
    EXPECT_EQ(f.report.dead, 0u);
    expect_valid(f, h.view());
    EXPECT_LT(inverse_error(f, h.view()), 2e-3);
    EXPECT_TRUE(equal_bytes(read_matrix<float>(*device_, on_device), h)) << "the Hessian must not change";
  }
}

TEST_P(FactorOn, WorksInAnyScale) {
  for (const float size : {1e-9f, 1e-4f, 1e4f, 1e8f}) {
    SCOPED_TRACE(size);
    const Matrix<float> h = random_hessian(96, 300, 8, size);
    const HostFactor f = factorize_on(*device_, h, 0.01f);
    EXPECT_FALSE(f.report.identity);
    expect_valid(f, h.view());
    EXPECT_LT(inverse_error(f, h.view()), 2e-3);
  }
}

TEST_P(FactorOn, DeadChannelsTakeTheMean) {
  Matrix<float> h = random_hessian(160, 500, 5);
  for (const size_t dead : {0, 7, 159}) {
    for (size_t i = 0; i < 160; ++i) h(i, dead) = h(dead, i) = 0;
  }
  const HostFactor f = factorize_on(*device_, h, 0.05f);
  EXPECT_EQ(f.report.dead, 3u);
  EXPECT_FALSE(f.report.identity);
  expect_valid(f, h.view());
  EXPECT_LT(inverse_error(f, h.view()), 2e-3);
}

TEST_P(FactorOn, ZeroHessianIsAllDead) {
  for (const size_t n : {1, 33, 200}) {
    const Matrix<float> h(n, n, true);
    const HostFactor f = factorize_on(*device_, h, 0.01f);
    EXPECT_EQ(f.report.dead, n);
    EXPECT_FALSE(f.report.identity);
    expect_valid(f, h.view());
    for (size_t i = 0; i < n; ++i) EXPECT_NEAR(f.weights[i], 1.01, 1e-4);
  }
}

TEST_P(FactorOn, EqualChannelsAndFewTokensAreDampedUntilTheyFactor) {
  for (const size_t n : {64, 200}) {
    for (const size_t tokens : {size_t{1}, n / 3}) {
      Matrix<float> h = random_hessian(n, tokens, n + tokens);
      for (size_t i = 0; i < n; ++i) h(i, 9) = h(i, 5);
      for (size_t i = 0; i < n; ++i) h(9, i) = h(5, i);
      SCOPED_TRACE(testing::Message() << n << " inputs, " << tokens << " tokens");
      const HostFactor f = factorize_on(*device_, h, 1e-9f);
      expect_valid(f, h.view());
      EXPECT_TRUE(f.report.identity || f.report.damping > 1e-9f) << f.report.damping;
      const HostFactor damped = factorize_on(*device_, h, 0.01f);
      EXPECT_FALSE(damped.report.identity);
      expect_valid(damped, h.view());
      EXPECT_LT(inverse_error(damped, h.view()), 0.02);
    }
  }
}

TEST_P(FactorOn, AnIndefiniteMatrixGivesTheIdentity) {
  Matrix<float> h(40, 40, true);
  for (size_t i = 0; i < 40; ++i) h(i, i) = static_cast<float>(i + 1);
  h(0, 1) = h(1, 0) = 1e6f;
  const HostFactor f = factorize_on(*device_, h, 0.01f);
  EXPECT_TRUE(f.report.identity);
  expect_valid(f, h.view());
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(f.input(i), i);
    EXPECT_FLOAT_EQ(f.weights[i], static_cast<float>(i + 1));
  }
}

TEST_P(FactorOn, RefusesWhatIsNotFiniteAndNamesIt) {
  const auto expect_refused = [&](const Matrix<float>& h, size_t input) {
    try {
      factorize_on(*device_, h, 0.01f, "model.layers.3.q_proj");
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kNumeric);
      EXPECT_EQ(std::string(e.what()).rfind("model.layers.3.q_proj: ", 0), 0u) << e.what();
      EXPECT_NE(std::string(e.what()).find("not finite at input " + std::to_string(input)), std::string::npos)
          << e.what();
    }
  };
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const std::pair<size_t, size_t> at : {std::pair{0, 0}, {149, 149}, {3, 140}, {0, 1}, {148, 149}}) {
      Matrix<float> h = random_hessian(150, 400, 2);
      h(at.first, at.second) = bad;
      SCOPED_TRACE(testing::Message() << bad << " at " << at.first << "," << at.second);
      expect_refused(h, at.first);
    }
  }
  Matrix<float> h = random_hessian(10, 40, 2);
  h(4, 4) = -1;
  expect_refused(h, 4);
}

TEST(Factor, IsTheSameOnEveryDeviceAtAnyNumberOfThreads) {
  const Matrix<float> h = random_hessian(300, 700, 6);
  const HostFactor one = factorize_on(*test::make_device("cpu", 1), h, 0.02f);
  for (const char* name : test::kDevices) {
    for (const size_t threads : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << name << ", " << threads << " threads");
      const HostFactor other = factorize_on(*test::make_device(name, threads), h, 0.02f);
      EXPECT_EQ(one.order, other.order);
      EXPECT_TRUE(equal_bytes(one.u, other.u));
      EXPECT_EQ(one.weights, other.weights);
    }
  }
}

TEST(FactorReport, TellsTheDampingThatWasUsed) {
  EXPECT_EQ(factor_report(std::vector<int32_t>{0, 4, 0, 0}, 0.5f, "x").dead, 4u);
  EXPECT_EQ(factor_report(std::vector<int32_t>{0, 0, 0, 0}, 0.5f, "x").damping, 0.5f);
  const FactorReport raised = factor_report(std::vector<int32_t>{3, 0, 0, 0}, 0.5f, "x");
  EXPECT_EQ(raised.damping, 500.0f);
  EXPECT_FALSE(raised.identity);
  EXPECT_TRUE(factor_report(std::vector<int32_t>{4, 0, 0, 0}, 0.5f, "x").identity);
}

TEST(DampingFor, GrowsWithInputsPerToken) {
  EXPECT_FLOAT_EQ(damping_for(576, 18432), 0.13125f);
  EXPECT_FLOAT_EQ(damping_for(5120, 5120), 1.1f);
  EXPECT_FLOAT_EQ(damping_for(5120, 1), 3.0f);
  EXPECT_FLOAT_EQ(damping_for(1, 1000000), 0.1f + 1e-6f);
}

}  // namespace
}  // namespace bw::quant
