#include "quant/target.h"

#include "quant/gptq.h"

namespace bw::quant {

using backend::Precision;
using backend::Tensor;
namespace op = backend::op;

void correct_target(backend::Backend& device, const Tensor& rows, const Tensor& w, const Disturbance& disturbance,
                    const Factor& factor, float share) {
  BW_CHECK(rows.rows == w.cols && disturbance.inputs.empty() != disturbance.outputs.empty());
  Tensor missing = disturbance.outputs;
  if (missing.empty()) {
    missing = device.allocate(w.rows, w.cols);
    device.enqueue(op::Gemm{w, false, disturbance.inputs, false, missing, 1.0f, 0.0f, Precision::kF32});
  }
  const Tensor missing_rows = transposed_in_order(device, missing, factor.order);
  const Tensor half_solved = device.allocate(rows.rows, rows.cols);
  device.enqueue(op::Gemm{factor.u, false, missing_rows, false, half_solved, 1.0f, 0.0f, Precision::kF32});
  device.enqueue(op::Gemm{factor.u, true, half_solved, false, rows, share, 1.0f, Precision::kF32});
}

}  // namespace bw::quant
