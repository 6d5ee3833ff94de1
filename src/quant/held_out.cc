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
      x_(device.zeros(2 * most_, in)) {
  const size_t kept = (2 * most_ + kColumnStep - 1) / kColumnStep * kColumnStep;
  for (Linear& linear : linears_) {
    linear.hessian = device.zeros(in, in);
    linear.gains = device.zeros(kept, 1);
    linear.own_gains = device.zeros(kept, 1);
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
  device_->enqueue(op::Copy{held_out_of(gains), l.gains.rows_slice(part_.at, part_.kept)});
  device_->enqueue(op::Copy{own_of(gains), l.own_gains.rows_slice(most_ + part_.at, part_.kept)});
}

Tensor HeldOutTokens::held_out_of(const Tensor& batch) const {
  return batch.rows_slice(batch.rows - part_.kept, part_.kept);
}

Tensor HeldOutTokens::own_of(const Tensor& batch) const {
  Tensor own = batch.rows_slice(0, part_.kept);
  own.stride *= part_.used / part_.kept;  // one row of so many
  return own;
}

// Keeps as many of the batch's as keep the share even.
void HeldOutTokens::begin_batch(const Tensor& x) {
  seen_ += x.rows;
  part_ = {x.rows, 0, 0};
  if (most_ == 0) return;  // too few tokens to hold any out
  const size_t held = x.rows / kHeldOutShare;
  held_out_ += held;
  const size_t kept = std::min({held, most_ - kept_, held_out_ * most_ / (tokens_ / kHeldOutShare) - kept_});
  part_ = {x.rows - held, kept, kept_};
  kept_ += kept;
  if (kept == 0) return;
  device_->enqueue(op::Copy{held_out_of(x), x_.rows_slice(part_.at, kept)});
  device_->enqueue(op::Copy{own_of(x), x_.rows_slice(most_ + part_.at, kept)});
}

Tensor HeldOutTokens::weights(size_t linear, const Factor& factor, const Tensor& all_gains,
                              size_t rounding_tokens) const {
  BW_CHECK(seen_ == tokens_ && all_gains.rows == tokens_ && rounding_tokens > 0);
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
  const Linear& l = linears_[linear];
  const double share = static_cast<double>(tokens_ - held_out_) / static_cast<double>(rounding_tokens);
  device_->enqueue(op::HeldOutWeights{y, l.gains, l.own_gains, all_gains, factor.weights, weights,
                                      static_cast<float>(std::min(1.0, share))});
  return weights;
}

}  // namespace bw::quant
