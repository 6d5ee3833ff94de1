// Random inputs of the tests of quant, and double-precision errors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/cases/rounding.h"
#include "base/matrix.h"
#include "base/rng.h"

namespace bw::quant {

using backend::conformance::normal;
using backend::conformance::Spread;

// (rows, cols) of the given distribution, about `size` large.
inline Matrix<float> random_matrix(size_t rows, size_t cols, uint64_t seed, float size = 1,
                                   Spread spread = Spread::kGaussian) {
  Matrix<float> m(rows, cols);
  const std::vector<float> values = backend::conformance::spread_floats(rows, cols, seed, size, spread);
  std::copy(values.begin(), values.end(), m.span().begin());
  return m;
}

// Σ x xᵀ of `tokens` correlated rows whose channels differ in size; symmetric.
inline Matrix<float> random_hessian(size_t n, size_t tokens, uint64_t seed, float size = 1) {
  Rng rng(seed);
  std::vector<double> channel(n);
  for (double& c : channel) c = std::exp(normal(rng)) * size;
  std::vector<double> h(n * n, 0.0), x(n);
  for (size_t t = 0; t < tokens; ++t) {
    double shared = normal(rng);
    for (size_t i = 0; i < n; ++i) x[i] = channel[i] * ((shared = 0.7 * shared + 0.7 * normal(rng)));
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) h[i * n + j] += x[i] * x[j];
    }
  }
  Matrix<float> m(n, n);
  std::transform(h.begin(), h.end(), m.span().begin(), [](double v) { return static_cast<float>(v); });
  return m;
}

// tr(Δ H Δᵀ) for Δ (out, in), with `added` on the diagonal of H; where `dead_diagonal` is not 0 it replaces zeros
// there.
inline double trace_error(MatrixView<const float> delta, MatrixView<const float> h, double added,
                          double dead_diagonal = 0) {
  double sum = 0;
  for (size_t o = 0; o < delta.rows; ++o) {
    for (size_t i = 0; i < delta.cols; ++i) {
      double row = 0;
      for (size_t j = 0; j < delta.cols; ++j) {
        double value = i <= j ? h(i, j) : h(j, i);
        if (i == j) value = (value == 0 ? dead_diagonal : value) + added;
        row += value * delta(o, j);
      }
      sum += row * delta(o, i);
    }
  }
  return sum;
}

inline double mean_diagonal(MatrixView<const float> h) {
  double sum = 0;
  size_t n = 0;
  for (size_t i = 0; i < h.rows; ++i) {
    sum += h(i, i);
    n += h(i, i) != 0;
  }
  return n == 0 ? 1 : sum / static_cast<double>(n);
}

}  // namespace bw::quant
