#include "quant/target.h"

#include <algorithm>

#include "quant/gptq.h"

namespace bw::quant {

using backend::Precision;
using backend::Tensor;
namespace op = backend::op;

namespace {

// Outputs whose step exists at once: many enough for full speed, few enough to keep a head of many outputs small.
constexpr size_t kOutputsAtOnce = 4096;
static_assert(kOutputsAtOnce % kColumnStep == 0);

}  // namespace

void correct_target(backend::Backend& device, const Tensor& rows, const Tensor& w, const Disturbance& disturbance,
                    const Factor& factor, float share) {
  BW_CHECK(rows.rows == w.cols && disturbance.inputs.empty() != disturbance.outputs.empty());
  for (size_t first = 0; first < w.rows; first += kOutputsAtOnce) {
    const size_t count = std::min(kOutputsAtOnce, w.rows - first);
    Tensor missing;
    if (disturbance.inputs.empty()) {
      missing = disturbance.outputs.rows_slice(first, count);
    } else {
      missing = device.allocate(count, w.cols);
      device.enqueue(
          op::Gemm{w.rows_slice(first, count), false, disturbance.inputs, false, missing, 1.0f, 0.0f, Precision::kF32});
    }
    const Tensor missing_rows = transposed_in_order(device, missing, factor.order);
    const Tensor half_solved = device.allocate(missing_rows.rows, missing_rows.cols);
    device.enqueue(op::Gemm{factor.u, false, missing_rows, false, half_solved, 1.0f, 0.0f, Precision::kF32});
    device.enqueue(op::Gemm{factor.u, true, half_solved, false, rows.cols_slice(first, missing_rows.cols),
                            share * disturbance.scale, 1.0f, Precision::kF32});
  }
}

}  // namespace bw::quant
