// GPTQ: rounding a matrix row by row while later rows make up for the errors of earlier ones.
#pragma once

#include <cstdint>
#include <vector>

#include "base/half.h"
#include "base/matrix.h"
#include "quant/factor.h"
#include "quant/layout.h"

namespace bw::quant {

// One linear as codes. Rows are in activation order, columns padded to a multiple of 32.
struct QuantizedLinear {
  Layout layout;
  uint32_t in = 0, out = 0;     // out without padding
  std::vector<uint32_t> order;  // (in) row r is input feature order[r]
  Matrix<uint8_t> codes;        // (in, padded out) q + 2^(bits-1)
  Matrix<uint8_t> scale_codes;  // (groups, padded out) 0..15
  std::vector<Half> scale_max;  // (groups)
  double error = 0;             // Σ e² = tr(Δ H Δᵀ) on the damped H that the factor was made from

  uint32_t padded_out() const { return static_cast<uint32_t>(codes.cols()); }
};

// (in, padded out) rows of w (out, in) in the given order, transposed; padding columns are zero.
Matrix<float> transposed_in_order(ThreadPool& pool, MatrixView<const float> w, const std::vector<uint32_t>& order);

// Quantizes w (in, padded out), made by transposed_in_order(factor.order); `out` is the number of columns before
// padding. w is used up: it holds no meaning afterwards. Deterministic at any number of threads. Per group: scale_max
// is the largest scale that any column wants, then each column takes the code with the least error under the weights
// 1/U_ii² (design: 'Scales').
QuantizedLinear quantize_gptq(backend::Backend& host, Matrix<float> w, uint32_t out, const Factor& factor,
                              const Layout& layout);

// (out, in) float weights that the loader will compute from the codes, in natural order of inputs, without padding.
Matrix<float> dequantize(ThreadPool& pool, const QuantizedLinear& q);

}  // namespace bw::quant
