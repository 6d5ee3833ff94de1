#include "quant/price.h"

#include <algorithm>

namespace bw::quant {

double feedback(int bits) { return bits == 2 ? 1.3 : bits == 3 ? 1.06 : 1.0; }

size_t width_index(int bits) {
  const auto* at = std::find(std::begin(kBitWidths), std::end(kBitWidths), bits);
  BW_CHECK(at != std::end(kBitWidths));
  return static_cast<size_t>(at - std::begin(kBitWidths));
}

size_t group_size_index(uint32_t group_size) {
  const auto* at = std::find(std::begin(kGroupSizes), std::end(kGroupSizes), group_size);
  BW_CHECK(at != std::end(kGroupSizes));
  return static_cast<size_t>(at - std::begin(kGroupSizes));
}

double PriceTable::price(const Layout& layout) const {
  double sum = 0;
  uint32_t row = 0;
  for (const BitRun& run : layout.runs) {
    BW_CHECK(row % run.group_size == 0);
    const std::vector<double>& groups = errors[width_index(run.bits)][group_size_index(run.group_size)];
    const uint32_t last = (row + run.rows + run.group_size - 1) / run.group_size;
    for (uint32_t g = row / run.group_size; g < last; ++g) sum += groups[g];
    row += run.rows;
  }
  return sum;
}

backend::Tensor price_errors(backend::Backend& device, const backend::Tensor& w, const backend::Tensor& weights) {
  const size_t groups = (w.rows + kRowStep - 1) / kRowStep;
  const backend::Tensor errors = device.allocate(kWidths * std::size(kGroupSizes), groups, backend::DType::kF64);
  device.enqueue(backend::op::PriceGroups{w,
                                          weights,
                                          {std::begin(kBitWidths), std::end(kBitWidths)},
                                          {std::begin(kGroupSizes), std::end(kGroupSizes)},
                                          errors});
  return errors;
}

PriceTable price_table(MatrixView<const double> errors, uint32_t in) {
  PriceTable table;
  table.in = in;
  for (size_t width = 0; width < kWidths; ++width) {
    for (size_t size = 0; size < std::size(kGroupSizes); ++size) {
      const double* row = errors.row(width * std::size(kGroupSizes) + size);
      std::vector<double>& groups = table.errors[width][size];
      groups.assign(row, row + (in + kGroupSizes[size] - 1) / kGroupSizes[size]);
      for (double& e : groups) e *= feedback(kBitWidths[width]);
    }
  }
  return table;
}

}  // namespace bw::quant
