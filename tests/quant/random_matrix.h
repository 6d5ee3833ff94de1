// Random inputs and double-precision references that the tests of quant and codec share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/half.h"
#include "base/matrix.h"
#include "base/rng.h"
#include "quant/gptq.h"
#include "quant/layout.h"

namespace bw::quant {

inline double normal(Rng& rng) {
  const double u = 1.0 - rng.next_double(), v = rng.next_double();
  return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
}

enum class Spread { kGaussian, kLaplace, kHeavyTailed, kOneOutlier };

// (rows, cols) of the given distribution, about `size` large. kOneOutlier: one value of 12 sizes in every column.
inline Matrix<float> random_matrix(size_t rows, size_t cols, uint64_t seed, float size = 1,
                                   Spread spread = Spread::kGaussian) {
  Rng rng(seed);
  Matrix<float> m(rows, cols);
  for (float& x : m.span()) {
    double v = normal(rng);
    if (spread == Spread::kLaplace) v = (v < 0 ? 1 : -1) * std::log(1.0 - rng.next_double());
    if (spread == Spread::kHeavyTailed) v /= std::sqrt(0.2 + std::pow(normal(rng), 2));
    x = static_cast<float>(v) * size;
  }
  if (spread != Spread::kOneOutlier || rows == 0) return m;
  for (size_t c = 0; c < cols; ++c) m(rng.below(static_cast<uint32_t>(rows)), c) = 12 * size;
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

// Codes, scale codes, scales and an order at random for any layout.
inline QuantizedLinear random_codes(const Layout& layout, uint32_t out, uint64_t seed) {
  Rng rng(seed);
  const std::vector<Group> groups = layout.groups();
  const uint32_t in = layout.rows();
  const size_t cols = (out + 31) / 32 * 32;
  QuantizedLinear q{layout,
                    in,
                    out,
                    std::vector<uint32_t>(in),
                    Matrix<uint8_t>(in, cols),
                    Matrix<uint8_t>(groups.size(), cols),
                    std::vector<Half>(groups.size()),
                    0};
  std::iota(q.order.begin(), q.order.end(), 0u);
  for (uint32_t i = in; i > 1; --i) std::swap(q.order[i - 1], q.order[rng.below(i)]);
  for (size_t g = 0; g < groups.size(); ++g) {
    q.scale_max[g] = Half(static_cast<uint16_t>(0x1400 + rng.below(0x2400)));
    for (size_t c = 0; c < cols; ++c) q.scale_codes(g, c) = static_cast<uint8_t>(rng.below(16));
    for (uint32_t r = groups[g].first; r < groups[g].first + groups[g].rows; ++r) {
      for (size_t c = 0; c < cols; ++c) q.codes(r, c) = static_cast<uint8_t>(rng.below(1u << groups[g].bits));
    }
  }
  return q;
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
