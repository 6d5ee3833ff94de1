// The triangular factor of the inverse Hessian that GPTQ works with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/matrix.h"

namespace bw::quant {

struct Factor {
  std::vector<uint32_t> order;  // activation order: row r is input feature order[r]; diag(H) falls
  Matrix<float> u;  // (in, in) upper triangular with H⁻¹ = Uᵀ U, rows and columns in activation order; zero below
  std::vector<float> weights;  // (in) 1 / U_ii²: what an error of row r costs once later rows have made up for it
  float damping = 0;           // share of mean(diag H) that was added to the diagonal
  uint32_t dead = 0;           // inputs that were never active; their diagonal was set to the mean
  bool identity = false;       // H could not be factored at any damping: order is natural, U = 1 / sqrt(diag)
};

// h: (in, in), its upper triangle filled: Σ x xᵀ over any number of tokens, in any scale. It is not changed.
// `damping` is raised 10-fold, up to 3 times, while the factorization fails (fewer tokens than inputs, equal channels,
// ...). Throws Error(kNumeric) beginning with `name` if h is not finite. `host`: a backend with host memory. Frantar et
// al., "GPTQ", ICLR 2023, section 3.3, step 3; here from one Cholesky factorization of the reversed matrix (H = R Rᵀ
// with R upper gives U = R⁻¹), instead of factor, invert and factor again.
Factor factorize(backend::Backend& host, MatrixView<const float> h, float damping, const std::string& name);

}  // namespace bw::quant
