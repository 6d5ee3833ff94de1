#include "quant/factor.h"

#include <algorithm>

#include <fmt/format.h>

#include "bitwright/error.h"

namespace bw::quant {

using backend::DType;
namespace op = backend::op;

float damping_for(size_t in, size_t tokens) {
  constexpr float kLeast = 0.1f, kMost = 3.0f;
  return std::min(kMost, kLeast + static_cast<float>(in) / static_cast<float>(tokens));
}

Factor factorize(backend::Backend& device, const backend::Tensor& h, float damping, bool keep_hessian) {
  const size_t n = h.rows;
  Factor f{device.allocate(n, 1, DType::kI32), device.allocate(n, n), device.allocate(n, 1),
           device.allocate(1, 4, DType::kI32), keep_hessian ? device.allocate(n, n) : backend::Tensor{}};
  device.enqueue(op::InverseFactor{h, damping, f.u, f.order, f.weights, f.status, f.ordered});
  return f;
}

FactorReport factor_report(std::span<const int32_t> status, float damping, const std::string& name) {
  BW_CHECK(status.size() == 4);
  if (status[op::kNotFinite] != 0) {
    throw Error(ErrorCode::kNumeric,
                fmt::format("{}: the Hessian is not finite at input {}", name, status[op::kNotFinite] - 1),
                "the activations are not finite there; check the model's weights for NaN or Inf");
  }
  FactorReport report;
  report.dead = static_cast<uint32_t>(status[op::kDeadInputs]);
  report.identity = status[op::kDampingSteps] > op::kMaxDampingSteps;
  report.damping = damping;
  for (int step = 0; step < status[op::kDampingSteps]; ++step) report.damping *= 10;
  return report;
}

}  // namespace bw::quant
