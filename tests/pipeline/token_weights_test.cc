#include "pipeline/token_weights.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

namespace bw::pipeline {
namespace {

Matrix<float> matrix(size_t rows, size_t cols, std::initializer_list<float> values) {
  Matrix<float> m(rows, cols);
  std::copy(values.begin(), values.end(), m.span().begin());
  return m;
}

const size_t kFirstTwo[] = {0, 1}, kLast[] = {2};

TEST(TokenWeights, AreTheRootOfTheMeanOfGainsByTheirMeans) {
  // Means 2, 10 and 4: shares 0.5, 1.5; 1.6, 0.4; 0.25, 1.75.
  const Matrix<float> gains = matrix(2, 3, {1, 16, 1, 3, 4, 7});
  const std::vector<float> both = token_weights(gains, kFirstTwo), one = token_weights(gains, kLast);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_FLOAT_EQ(both[0], std::sqrt((0.5f + 1.6f) / 2));
  EXPECT_FLOAT_EQ(both[1], std::sqrt((1.5f + 0.4f) / 2));
  EXPECT_FLOAT_EQ(one[0], std::sqrt(0.25f));
  EXPECT_FLOAT_EQ(one[1], std::sqrt(1.75f));
}

TEST(TokenWeights, LeaveOutLinearsWithoutGain) {
  const std::vector<float> w = token_weights(matrix(2, 2, {1, 0, 3, 0}), kFirstTwo);
  EXPECT_FLOAT_EQ(w[0], std::sqrt(0.5f));
  EXPECT_FLOAT_EQ(w[1], std::sqrt(1.5f));
}

TEST(TokenWeights, AreOnesWithoutAnyGain) {
  EXPECT_EQ(token_weights(matrix(3, 2, {0, 0, 0, 0, 0, 0}), kFirstTwo), std::vector<float>(3, 1.0f));
}

}  // namespace
}  // namespace bw::pipeline
