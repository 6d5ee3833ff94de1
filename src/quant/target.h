// What a linear should compute where its inputs have been disturbed.
#pragma once

#include "quant/factor.h"

namespace bw::quant {

// Sums over tokens t with weights g_t, of undisturbed inputs x_t and of the disturbed ones z_t that the linear will
// see: one of two.
struct Disturbance {
  backend::Tensor inputs;   // (in, in) Σ g (x - z) zᵀ, the same for all linears that read x
  backend::Tensor outputs;  // (out, in) Σ g m zᵀ for what is missing, m = w (x - z), and more where outputs are added
                            // to a sum that is off itself
  float scale = 1;  // tokens of H for each token of these sums
};

// Moves the rows that GPTQ aims at, (in, padded out) by transposed_in_order(w, factor.order), towards the weights whose
// outputs on z are nearest to those of w (out, in) on x:
//   rows += share · scale · (H + λI)⁻¹ (w · inputs, or outputs)ᵀ
// with H = Σ g z zᵀ and its damping as in the factor. It is least squares on as many tokens as there are, so the whole
// step (share 1) fits their noise too: docs/quality.md has the measurements behind the share.
// (Reconstruction from disturbed inputs: Nagel et al., "Up or Down? Adaptive Rounding for Post-Training Quantization",
// ICML 2020, who call it asymmetric.)
void correct_target(backend::Backend& device, const backend::Tensor& rows, const backend::Tensor& w,
                    const Disturbance& disturbance, const Factor& factor, float share);

}  // namespace bw::quant
