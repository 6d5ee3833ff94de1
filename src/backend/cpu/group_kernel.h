// The vectorised inner loops over one group of rows: scale search, rounding, and feeding errors forward.
//
// A panel is (rows, cols) float, row-major; columns are outputs and are independent of each other. `cols` must be a
// multiple of kColumnStep, itself one of every vector length. All kernels are noexcept and run on the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/ops.h"
#include "base/matrix.h"

namespace bw::backend::cpu {

// For each column the scale among kScaleTrials steps below max|w| / 2^(bits-1) whose rounding error, weighted per row
// by `weights` (rows), is least, but no more than 65504 / 2^(bits-1), so that every stored value is finite; 0 for a
// column of zeros. scales: (cols).
void find_scales(MatrixView<const float> w, const float* weights, int bits, float* scales) noexcept;

// For each column the code of code_scales (16 ascending values, see scale_grid.h) whose weighted rounding error is
// least; 0 for a column of zeros. codes: (cols). errors: (rows), += the weighted squared error of each row, summed over
// the columns; may be null.
void find_codes(MatrixView<const float> w, const float* weights, int bits, const float* code_scales, uint8_t* codes,
                double* errors) noexcept;

// Rounds the group's rows one after the other and feeds each row's error forward to the later rows of the same panel:
//   q = round(w / scale) clamped, e = (w - half(q · scale)) / U_ii, w_j -= e · U_ij for the rows j > i of the panel.
// w: the rows of the group and after them any number of rows that take the correction (changed in place).
// u: row i of the group holds U_i,i ... at u.row(i)[i ...]. scales: (cols).
// q: (group rows, cols), q + 2^(bits-1). e: (group rows, cols), the errors e. error: += Σ e².
void round_and_feed(MatrixView<float> w, size_t group_rows, MatrixView<const float> u, int bits, const float* scales,
                    MatrixView<uint8_t> q, MatrixView<float> e, double* error) noexcept;

// One pass of coordinate descent over the codes of a group (see op::RefineGroup). gradient: (group rows, cols), used
// up. h: (group rows, group rows). scales: (cols). q and e are changed in place. Returns by how much the error fell.
double descend(MatrixView<float> gradient, MatrixView<const float> h, int bits, const float* scales,
               MatrixView<uint8_t> q, MatrixView<float> e) noexcept;

// The instruction sets (Highway's target bits) that these kernels were compiled for and the processor can run (for
// tests, which force each).
std::vector<int64_t> supported_targets();

}  // namespace bw::backend::cpu
