#include "quant/gptq.h"

#include <algorithm>

namespace bw::quant {
namespace {

using backend::DType;
using backend::Tensor;
namespace op = backend::op;

constexpr size_t kPanelRows = 256;  // rows whose errors are fed forward inside a panel before the one product past it

// A range of whole groups, [first_group, last_group), and the rows they span.
struct Panel {
  size_t first_group = 0, last_group = 0;
  size_t first = 0, rows = 0;
};

std::vector<Panel> panels_of(const std::vector<Group>& groups) {
  std::vector<Panel> panels;
  for (size_t g = 0; g < groups.size();) {
    Panel p{g, g, groups[g].first, 0};
    while (p.last_group < groups.size() && (p.rows == 0 || p.rows + groups[p.last_group].rows <= kPanelRows)) {
      p.rows += groups[p.last_group++].rows;
    }
    panels.push_back(p);
    g = p.last_group;
  }
  return panels;
}

// What the groups of a linear share while they are rounded.
struct Scratch {
  Tensor errors;       // (rows of a panel, cols)
  Tensor wanted;       // (1, cols)
  Tensor code_scales;  // (1, 16)
};

void round_panel(backend::Backend& device, const Tensor& w, const Factor& factor, const std::vector<Group>& groups,
                 const Panel& panel, const Scratch& scratch, const QuantizedLinear& q) {
  const size_t panel_end = panel.first + panel.rows;
  for (size_t g = panel.first_group; g < panel.last_group; ++g) {
    const Group& group = groups[g];
    const size_t left = panel_end - group.first;
    const Tensor rows = w.rows_slice(group.first, left);
    const Tensor weights = factor.weights.rows_slice(group.first, group.rows);
    device.enqueue(op::GroupScale{rows.rows_slice(0, group.rows), weights, group.bits, scratch.wanted,
                                  q.scale_max.rows_slice(g, 1), scratch.code_scales});
    device.enqueue(op::RoundGroup{rows, factor.u.rows_slice(group.first, group.rows).cols_slice(group.first, left),
                                  weights, group.bits, scratch.code_scales, q.codes.rows_slice(group.first, group.rows),
                                  q.scale_codes.rows_slice(g, 1),
                                  scratch.errors.rows_slice(group.first - panel.first, group.rows), q.error});
  }
  if (panel_end == w.rows) return;
  // W[panel_end:, :] -= U[panel, panel_end:]ᵀ · E
  const size_t rest = w.rows - panel_end;
  device.enqueue(op::Gemm{factor.u.rows_slice(panel.first, panel.rows).cols_slice(panel_end, rest), true,
                          scratch.errors.rows_slice(0, panel.rows), false, w.rows_slice(panel_end, rest), -1.0f, 1.0f,
                          backend::Precision::kF32});
}

}  // namespace

Tensor transposed_in_order(backend::Backend& device, const Tensor& w, const Tensor& order) {
  const size_t padded = (w.rows + kColumnStep - 1) / kColumnStep * kColumnStep;
  const Tensor rows = device.allocate(w.cols, padded);
  device.enqueue(op::TransposeInOrder{w, order, rows});
  return rows;
}

QuantizedLinear quantize_gptq(backend::Backend& device, const Tensor& w, uint32_t out, const Factor& factor,
                              const Layout& layout) {
  const size_t in = w.rows, cols = w.cols;
  BW_CHECK(layout.rows() == in && factor.order.rows == in && cols % kColumnStep == 0 && out <= cols);
  const std::vector<Group> groups = layout.groups();
  const QuantizedLinear q{layout,
                          static_cast<uint32_t>(in),
                          out,
                          factor.order,
                          device.allocate(in, cols, DType::kU8),
                          device.allocate(groups.size(), cols, DType::kU8),
                          device.allocate(groups.size(), 1, DType::kF16),
                          device.zeros(1, 1, DType::kF64)};
  const Scratch scratch{device.allocate(std::min(kPanelRows, in), cols), device.allocate(1, cols),
                        device.allocate(1, 16)};
  for (const Panel& panel : panels_of(groups)) round_panel(device, w, factor, groups, panel, scratch, q);
  return q;
}

Tensor dequantize(backend::Backend& device, const QuantizedLinear& q) {
  const Tensor w = device.allocate(q.out, q.in);
  uint32_t row = 0, group = 0;
  for (const BitRun& run : q.layout.runs) {
    const uint32_t groups = (run.rows + run.group_size - 1) / run.group_size;
    device.enqueue(op::Dequantize{q.codes.rows_slice(row, run.rows), q.scale_codes.rows_slice(group, groups),
                                  q.scale_max.rows_slice(group, groups), q.order.rows_slice(row, run.rows), run.bits,
                                  run.group_size, w});
    row += run.rows;
    group += groups;
  }
  return w;
}

}  // namespace bw::quant
