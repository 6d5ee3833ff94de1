#include "pipeline/token_weights.h"

#include <cmath>

namespace bw::pipeline {

std::vector<float> token_weights(const Matrix<float>& gains, std::span<const size_t> columns) {
  const auto tokens = static_cast<double>(gains.rows());
  std::vector<double> weights(gains.rows(), 0.0);
  size_t telling = 0;
  for (const size_t k : columns) {
    double sum = 0;
    for (size_t t = 0; t < gains.rows(); ++t) sum += gains(t, k);
    if (!(sum > 0)) continue;
    ++telling;
    for (size_t t = 0; t < gains.rows(); ++t) weights[t] += gains(t, k) * (tokens / sum);
  }
  if (telling == 0) return std::vector<float>(gains.rows(), 1.0f);
  std::vector<float> roots(gains.rows());
  for (size_t t = 0; t < gains.rows(); ++t) {
    roots[t] = static_cast<float>(std::sqrt(weights[t] / static_cast<double>(telling)));
  }
  return roots;
}

}  // namespace bw::pipeline
