// What storing rows of a linear at each width would cost, estimated before anything is quantized.
#pragma once

#include <array>
#include <vector>

#include "quant/factor.h"
#include "quant/layout.h"

namespace bw::quant {

// errors[width][size][group]: Σ over rows of the group and columns of weight_i (w - rounded)², with the scales that
// GPTQ would choose under these weights; weights 1 / U_ii² tell what an error costs on the tokens of H, held_out.h on
// others; `width` indexes kBitWidths, `size` kGroupSizes, groups lie at multiples of the group size (the last may be
// shorter), times feedback(bits). The sum over a layout's groups estimates tr(Δ H Δᵀ) of its GPTQ result: GPTQ's own
// error is Σ e² with e = (w - q) / U_ii, where w has taken the corrections of earlier rows; here w is the original, and
// the factor makes up for that. So no layout needs a quantization of its own.
struct PriceTable {
  uint32_t in = 0;
  std::array<std::array<std::vector<double>, std::size(kGroupSizes)>, kWidths> errors;

  // Price of a layout whose runs begin at multiples of their group size.
  double price(const Layout& layout) const;
};

// On the device: (widths · sizes, groups) f64 for price_table. w: (in, padded out) by
// transposed_in_order(factor.order); weights (in, 1) in this order. Nothing is changed.
backend::Tensor price_errors(backend::Backend& device, const backend::Tensor& w, const backend::Tensor& weights);
// errors: price_errors of a linear of `in` inputs, downloaded.
PriceTable price_table(MatrixView<const double> errors, uint32_t in);

// GPTQ's real error over that of rounding the original weights: the coarser the levels, the more the corrections that a
// row has taken add to what it must represent. Measured on random linears; the tests hold the estimate to a sixth of
// the real error.
double feedback(int bits);

// Index in kBitWidths; throws Error(kInternal) if there is none.
size_t width_index(int bits);
size_t group_size_index(uint32_t group_size);

}  // namespace bw::quant
