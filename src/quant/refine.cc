#include "quant/refine.h"

namespace bw::quant {

using backend::Tensor;
namespace op = backend::op;

void refine(backend::Backend& device, const Tensor& target, const Factor& factor, const QuantizedLinear& q,
            int sweeps) {
  if (sweeps <= 0) return;
  BW_CHECK(target.rows == q.in && target.cols == q.padded_out() && !factor.ordered.empty());
  const Tensor values = transposed_in_order(device, dequantize(device, q), factor.order);
  device.enqueue(op::Scale{values, -1});
  device.enqueue(op::Add{values, target});  // from here on the target holds E
  const std::vector<Group> groups = q.layout.groups();
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    for (size_t g = 0; g < groups.size(); ++g) {
      const Group& group = groups[g];
      const Tensor h = factor.ordered.rows_slice(group.first, group.rows);
      const Tensor gradient = values.rows_slice(0, group.rows);
      device.enqueue(op::Gemm{h, false, target, false, gradient, 1.0f, 0.0f, backend::Precision::kF32});
      device.enqueue(op::RefineGroup{gradient, h.cols_slice(group.first, group.rows), q.scale_max.rows_slice(g, 1),
                                     q.scale_codes.rows_slice(g, 1), group.bits,
                                     q.codes.rows_slice(group.first, group.rows),
                                     target.rows_slice(group.first, group.rows), q.error});
    }
  }
}

}  // namespace bw::quant
