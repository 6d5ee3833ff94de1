#include "quant/held_out.h"

#include <algorithm>

#include "quant/gptq.h"

namespace bw::quant {

using backend::Tensor;
namespace op = backend::op;

namespace {

// Rows of U that are multiplied at once: its zeros below the diagonal are left out by panels.
constexpr size_t kPanel = 512;

}  // namespace

HeldOutTokens::HeldOutTokens(backend::Backend& device, size_t linears, size_t tokens, size_t in, size_t most,
                             backend::Precision precision)
    : device_(&device),
      tokens_(tokens),
      most_(std::min(most, tokens / kHeldOutShare)),
      precision_(precision),
      linears_(linears),
      x_(device.zeros(most_, in)) {
  for (Linear& linear : linears_) {
    linear.hessian = device.zeros(in, in);
    linear.gains = device.zeros((most_ + kColumnStep - 1) / kColumnStep * kColumnStep, 1);
  }
}

void HeldOutTokens::add(size_t linear, const Tensor& x, const Tensor& gains) {
  Linear& l = linears_[linear];
  if (l.seen == seen_) begin_batch(x);
  l.seen += x.rows;
  BW_CHECK(x.rows == gains.rows && l.seen == seen_ && seen_ <= tokens_);
  device_->enqueue(
      op::AccumulateGram{x.rows_slice(0, part_.used), gains.rows_slice(0, part_.used), l.hessian, precision_});
  if (part_.kept == 0) return;
  device_->enqueue(
      op::Copy{gains.rows_slice(x.rows - part_.kept, part_.kept), l.gains.rows_slice(part_.at, part_.kept)});
}

// Keeps as many of the batch's as keep the share even.
void HeldOutTokens::begin_batch(const Tensor& x) {
  seen_ += x.rows;
  const size_t held = most_ == 0 ? 0 : x.rows / kHeldOutShare;
  held_out_ += held;
  const size_t kept = std::min({held, most_ - kept_, held_out_ * most_ / (tokens_ / kHeldOutShare) - kept_});
  part_ = {x.rows - held, kept, kept_};
  kept_ += kept;
  if (kept > 0) device_->enqueue(op::Copy{x.rows_slice(x.rows - kept, kept), x_.rows_slice(part_.at, kept)});
}

Tensor HeldOutTokens::weights(size_t linear, const Factor& factor, const Tensor& all_gains) const {
  BW_CHECK(seen_ == tokens_ && all_gains.rows == tokens_);
  if (most_ == 0) return factor.weights;
  const size_t n = factor.u.rows;
  const Tensor z = transposed_in_order(*device_, x_, factor.order);
  const Tensor y = device_->allocate(n, z.cols);
  for (size_t first = 0; first < n; first += kPanel) {
    const size_t rows = std::min(kPanel, n - first);
    device_->enqueue(op::Gemm{factor.u.rows_slice(first, rows).cols_slice(first, n - first), false,
                              z.rows_slice(first, n - first), false, y.rows_slice(first, rows), 1.0f, 0.0f,
                              backend::Precision::kF32});
  }
  const Tensor weights = device_->allocate(n, 1);
  device_->enqueue(op::HeldOutWeights{y, linears_[linear].gains, all_gains, factor.weights, weights});
  return weights;
}

}  // namespace bw::quant
