// GPTQ: rounding a matrix row by row while later rows make up for the errors of earlier ones.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "quant/factor.h"
#include "quant/layout.h"

namespace bw::quant {

using backend::kColumnStep;

// One linear as codes, on the device. Rows are in activation order, columns padded to a multiple of kColumnStep.
struct QuantizedLinear {
  Layout layout;
  uint32_t in = 0, out = 0;     // out without padding
  backend::Tensor order;        // (in, 1) i32: row r is input feature order[r]
  backend::Tensor codes;        // (in, padded out) u8: q + 2^(bits-1)
  backend::Tensor scale_codes;  // (groups, padded out) u8: 0..15
  backend::Tensor scale_max;    // (groups, 1) f16
  backend::Tensor error;  // (1, 1) f64: Σ e² = tr(Δ H Δᵀ) on the damped H that the factor was made from; may be empty

  size_t padded_out() const { return codes.cols; }
};

// (in, padded out) rows of w (out, in) in the given order (in, 1; i32), transposed; padding columns are zero.
backend::Tensor transposed_in_order(backend::Backend& device, const backend::Tensor& w, const backend::Tensor& order);

// Quantizes w (in, padded out), made by transposed_in_order(factor.order); `out` is the number of columns before
// padding. w is used up: it holds no meaning afterwards. Deterministic at any number of threads. Per group: scale_max
// is the largest scale that any column wants, then each column takes the code with the least error under the weights
// 1/U_ii² (design: 'Scales').
QuantizedLinear quantize_gptq(backend::Backend& device, const backend::Tensor& w, uint32_t out, const Factor& factor,
                              const Layout& layout);

// (out, in) float weights that the loader will compute from the codes, in natural order of inputs, without padding.
backend::Tensor dequantize(backend::Backend& device, const QuantizedLinear& q);

}  // namespace bw::quant
