#include "quant/price.h"

#include <algorithm>

#include "quant/group_kernel.h"
#include "quant/scale_grid.h"

namespace bw::quant {
namespace {

// The group's error at one width, rounded to nearest with the scales that GPTQ would choose.
double group_error(MatrixView<const float> rows, const float* weights, int bits, std::vector<float>& wanted,
                   std::vector<uint8_t>& codes) {
  find_scales(rows, weights, bits, wanted.data());
  const auto scales = code_scales(scale_max_for(*std::max_element(wanted.begin(), wanted.end())));
  std::array<double, kMaxGroupRows> errors{};
  find_codes(rows, weights, bits, scales.data(), codes.data(), errors.data());
  double sum = 0;
  for (size_t r = 0; r < rows.rows; ++r) sum += errors[r];
  return sum;
}

}  // namespace

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

PriceTable price_table(ThreadPool& pool, const Matrix<float>& w, const Factor& factor) {
  PriceTable table;
  table.in = static_cast<uint32_t>(w.rows());
  struct Task {
    size_t width, size, group;
  };
  std::vector<Task> tasks;
  for (size_t size = 0; size < std::size(kGroupSizes); ++size) {
    const size_t groups = (w.rows() + kGroupSizes[size] - 1) / kGroupSizes[size];
    for (size_t width = 0; width < kWidths; ++width) table.errors[width][size].resize(groups);
    for (size_t group = 0; group < groups; ++group) {
      for (size_t width = 0; width < kWidths; ++width) tasks.push_back({width, size, group});
    }
  }
  struct Scratch {
    std::vector<float> wanted;
    std::vector<uint8_t> codes;
  };
  std::vector<Scratch> scratch(pool.threads());
  for (Scratch& s : scratch) s = {std::vector<float>(w.cols()), std::vector<uint8_t>(w.cols())};
  pool.parallel_for(tasks.size(), [&](size_t i, size_t worker) {
    const Task& t = tasks[i];
    const size_t first = t.group * kGroupSizes[t.size];
    const size_t rows = std::min<size_t>(kGroupSizes[t.size], w.rows() - first);
    table.errors[t.width][t.size][t.group] =
        feedback(kBitWidths[t.width]) * group_error(w.view().rows_slice(first, rows), factor.weights.data() + first,
                                                    kBitWidths[t.width], scratch[worker].wanted, scratch[worker].codes);
  });
  return table;
}

}  // namespace bw::quant
