// The triangular factor of the inverse Hessian that GPTQ works with.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "backend/backend.h"

namespace bw::quant {

// On the device. See op::InverseFactor.
struct Factor {
  backend::Tensor order;    // (in, 1) i32: activation order: row r is input feature order[r]; diag(H) falls
  backend::Tensor u;        // (in, in) upper triangular with H⁻¹ = Uᵀ U, rows and columns in activation order
  backend::Tensor weights;  // (in, 1) 1 / U_ii²: what an error of row r costs once later rows have made up for it
  backend::Tensor status;   // (1, 4) i32, see factor_report
  backend::Tensor ordered;  // (in, in) the damped H itself, rows and columns in activation order; empty: not asked for
};

// The damping of a Hessian of `in` inputs over `tokens` tokens, as a share of mean(diag H): more where there are few
// tokens for the inputs, as the best ridge is in proportion to inputs over tokens (Hoerl, Kennard and Baldwin, "Ridge
// regression: some simulations", Communications in Statistics 4, 1975: p σ² / |β|²). docs/quality.md has the
// measurements behind the figures.
float damping_for(size_t in, size_t tokens);

// h: (in, in), its upper triangle filled: Σ x xᵀ over any number of tokens, in any scale. It is not changed.
// `damping`: share of mean(diag H) that is added to the diagonal; raised 10-fold, up to 3 times, while the
// factorization fails (fewer tokens than inputs, equal channels, ...).
// keep_hessian: whether to fill `ordered`.
Factor factorize(backend::Backend& device, const backend::Tensor& h, float damping, bool keep_hessian = false);

// What became of a factor, once its status has been downloaded.
struct FactorReport {
  float damping = 0;      // that was used
  uint32_t dead = 0;      // inputs that were never active; their diagonal was set to the mean
  bool identity = false;  // H could not be factored at any damping: order is natural, U = 1 / sqrt(diag)
};

// status: the four numbers of Factor::status, which was made with `damping`. Throws Error(kNumeric) beginning with
// `name` if h was not finite.
FactorReport factor_report(std::span<const int32_t> status, float damping, const std::string& name);

}  // namespace bw::quant
