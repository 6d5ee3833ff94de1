// What a linear should compute where its inputs have been disturbed.
#pragma once

#include "quant/factor.h"

namespace bw::quant {

// Sums over tokens t with weights g_t, of undisturbed inputs x_t and the disturbed ones x̂_t that the linear will see.
struct Disturbance {
  backend::Tensor inputs;  // (in, in) Σ g (x - x̂) x̂ᵀ; empty: nothing is to be corrected
  backend::Tensor outputs;  // (out, in) Σ g (r - r̂) x̂ᵀ, what its sum r with others is off by before it; empty: no sum
};

// Moves the rows that GPTQ aims at, (in, padded out) by transposed_in_order(w, factor.order), towards the weights whose
// outputs on x̂ are nearest to those of w (out, in) on x, what the sum is already off by included:
//   rows += share · (H + λI)⁻¹ (w · inputs + outputs)ᵀ
// with H = Σ g x̂ x̂ᵀ and its damping as in the factor. It is least squares on as many tokens as there are, so the whole
// step (share 1) fits their noise too: docs/quality.md has the measurements behind the share.
// (Reconstruction from disturbed inputs: Nagel et al., "Up or Down? Adaptive Rounding for Post-Training Quantization",
// ICML 2020, who call it asymmetric.)
void correct_target(backend::Backend& device, const backend::Tensor& rows, const backend::Tensor& w,
                    const Disturbance& disturbance, const Factor& factor, float share);

}  // namespace bw::quant
