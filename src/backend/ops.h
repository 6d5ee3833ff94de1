// The operations of a device, as values: what a backend is asked to enqueue.
//
// An operation is a struct of its operands with
//   kName                its name in counters and traces
//   operands(visit)      visit(tensor, access) for every tensor, so that queues can be ordered and memory checked
//   check()              throws Error(kInternal) unless shapes and types fit
// All tensors are float unless stated. T = tokens (rows of the matrices), in row order: for rows of calibration, row
// after row. An empty tensor stands for an operand that is left out, where that is allowed. Results may be written over
// operands only where it is said. Columns of order and of weights have no gaps between their rows.
//
// To add one: a struct here, its name in Op below, check() in ops.cc, and a function in each backend.
#pragma once

#include <string_view>
#include <variant>
#include <vector>

#include "backend/quantization_ops.h"
#include "backend/tensor.h"

namespace bw::backend {

enum class ActivationKind : uint8_t { kSilu, kGeluTanh, kGelu };

struct AttentionShape {
  size_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  float scale = 0;    // multiplies q·k
  float softcap = 0;  // softcap * tanh(score / softcap) before the mask; 0: none
  size_t window = 0;  // positions a query sees, itself included; 0: all before it
};

namespace op {

// Movement ----------------------------------------------------------------------------------------------------------

// x = value. x: f32, f64 or i32 (then the value's integer part).
struct Fill {
  static constexpr std::string_view kName = "fill";
  Tensor x;
  float value = 0;
  void check() const;
  void operands(auto&& visit) const { visit(x, Access::kWrite); }
};

// dst = src, same shape; converts between float types (f32, bf16, f16), else of one type.
struct Copy {
  static constexpr std::string_view kName = "copy";
  Tensor src, dst;
  void check() const;
  void operands(auto&& visit) const { visit(src, Access::kRead), visit(dst, Access::kWrite); }
};

// Brings w (out, in) into the device's own form (see Backend::pack_weight).
struct PackWeight {
  static constexpr std::string_view kName = "pack weight";
  Tensor w;
  std::shared_ptr<Weight> packed;
  void check() const;
  void operands(auto&& visit) const { visit(w, Access::kRead); }
};

// rows (in, padded out)[r][c] = w (out, in)[c][order[r]]; columns past `out` become 0. order (in, 1) i32; empty: as
// they stand.
struct TransposeInOrder {
  static constexpr std::string_view kName = "transpose in order";
  Tensor w, order, rows;
  void check() const;
  void operands(auto&& visit) const {
    visit(w, Access::kRead), visit(order, Access::kRead), visit(rows, Access::kWrite);
  }
};

// Matrix products ---------------------------------------------------------------------------------------------------

// y (T, out) = x (T, in) · wᵀ + bias (1, out; or empty); with `accumulate`, y += the same.
struct Linear {
  static constexpr std::string_view kName = "linear";
  Tensor x;
  std::shared_ptr<const Weight> w;
  Tensor bias, y;
  bool accumulate = false;
  void check() const;
  void operands(auto&& visit) const { visit(x, Access::kRead), visit(bias, Access::kRead), visit(y, Access::kWrite); }
};

// c (m, n) = alpha · op(a) · op(b) + beta · c; c is not read if beta is 0. op(a): (m, k), op(b): (k, n).
struct Gemm {
  static constexpr std::string_view kName = "gemm";
  Tensor a;
  bool transpose_a = false;
  Tensor b;
  bool transpose_b = false;
  Tensor c;
  float alpha = 1, beta = 0;
  Precision precision = Precision::kF32;
  void check() const;
  void operands(auto&& visit) const { visit(a, Access::kRead), visit(b, Access::kRead), visit(c, Access::kWrite); }
};

// Upper triangle of h (n, n) += Σ_t weight_t · x_t x_tᵀ, for x (T, n), weight (T, 1) or empty for ones. The lower
// triangle is undefined afterwards. The order of summation depends on T alone. In bf16, x and weight · x are rounded.
struct AccumulateGram {
  static constexpr std::string_view kName = "accumulate gram";
  Tensor x, weight, h;
  Precision precision = Precision::kF32;
  void check() const;
  void operands(auto&& visit) const { visit(x, Access::kRead), visit(weight, Access::kRead), visit(h, Access::kWrite); }
};

// full (n, n) = the symmetric matrix whose upper triangle is that of h (n, n).
struct Symmetrize {
  static constexpr std::string_view kName = "symmetrize";
  Tensor h, full;
  void check() const;
  void operands(auto&& visit) const { visit(h, Access::kRead), visit(full, Access::kWrite); }
};

// sum (1, 1; f64) += Σ a ∘ b, same shapes: each row's products summed in float, the rows in double.
struct Dot {
  static constexpr std::string_view kName = "dot";
  Tensor a, b, sum;
  void check() const;
  void operands(auto&& visit) const { visit(a, Access::kRead), visit(b, Access::kRead), visit(sum, Access::kWrite); }
};

// Element-wise and row-wise -----------------------------------------------------------------------------------------

// y_t = x_t / sqrt(mean(x_t²) + eps) · weight, for each run of `weight.cols` columns of a row (heads: several a row).
// weight (1, n). y may be x.
struct RmsNorm {
  static constexpr std::string_view kName = "rms norm";
  Tensor x, weight;
  float eps = 0;
  Tensor y;
  void check() const;
  void operands(auto&& visit) const { visit(x, Access::kRead), visit(weight, Access::kRead), visit(y, Access::kWrite); }
};

// y += x
struct Add {
  static constexpr std::string_view kName = "add";
  Tensor x, y;
  void check() const;
  void operands(auto&& visit) const { visit(x, Access::kRead), visit(y, Access::kWrite); }
};

// x *= factor
struct Scale {
  static constexpr std::string_view kName = "scale";
  Tensor x;
  float factor = 1;
  void check() const;
  void operands(auto&& visit) const { visit(x, Access::kWrite); }
};

// y = act(gate) * up, all (T, n); y may be gate or up.
struct GatedActivation {
  static constexpr std::string_view kName = "gated activation";
  Tensor gate, up;
  ActivationKind kind = ActivationKind::kSilu;
  Tensor y;
  void check() const;
  void operands(auto&& visit) const { visit(gate, Access::kRead), visit(up, Access::kRead), visit(y, Access::kWrite); }
};

// x = cap * tanh(x / cap)
struct Softcap {
  static constexpr std::string_view kName = "softcap";
  Tensor x;
  float cap = 0;
  void check() const;
  void operands(auto&& visit) const { visit(x, Access::kWrite); }
};

// Rotates pairs (i, i + head_dim/2) of every head of x (T, heads * head_dim) by the angle of its position, or with
// `inverse` back (which is also the gradient): cos_sin
// (positions, head_dim) holds cos in the first half of a row, sin in the second; positions (T, 1) i32, each below
// cos_sin.rows.
struct Rope {
  static constexpr std::string_view kName = "rope";
  Tensor x;
  size_t head_dim = 0;
  Tensor positions, cos_sin;
  bool inverse = false;
  void check() const;
  void operands(auto&& visit) const {
    visit(x, Access::kWrite), visit(positions, Access::kRead), visit(cos_sin, Access::kRead);
  }
};

// out (T, 1) = Σ_c (x_tc - minus_tc)²; minus: as x, or empty for 0.
struct RowSquaredNorms {
  static constexpr std::string_view kName = "row squared norms";
  Tensor x, minus, out;
  void check() const;
  void operands(auto&& visit) const {
    visit(x, Access::kRead), visit(minus, Access::kRead), visit(out, Access::kWrite);
  }
};

// y_t = weight_t · (x_t - minus_t), all (T, n), weight (T, 1). y may be an operand.
struct WeightedDifference {
  static constexpr std::string_view kName = "weighted difference";
  Tensor x, minus, weight, y;
  void check() const;
  void operands(auto&& visit) const {
    visit(x, Access::kRead), visit(minus, Access::kRead), visit(weight, Access::kRead), visit(y, Access::kWrite);
  }
};

// out_t = numerator_t / denominator_t, 0 where the denominator is not above 0; numerator empty: 1. All (T, 1); out may
// be an operand. sum (1, 1; f64; or empty) += Σ_t out_t, in order.
struct RowRatios {
  static constexpr std::string_view kName = "row ratios";
  Tensor numerator, denominator, out, sum;
  void check() const;
  void operands(auto&& visit) const {
    visit(numerator, Access::kRead), visit(denominator, Access::kRead);
    visit(out, Access::kWrite), visit(sum, Access::kWrite);
  }
};

// largest (1, 1) = the largest of it and of all |x|; NaN if one of them is.
struct LargestMagnitude {
  static constexpr std::string_view kName = "largest magnitude";
  Tensor x, largest;
  void check() const;
  void operands(auto&& visit) const { visit(x, Access::kRead), visit(largest, Access::kWrite); }
};

// Attention ---------------------------------------------------------------------------------------------------------

// Causal attention of `sequences` rows of equal length L = T / sequences. q (T, n_heads·head_dim), k, v (T,
// n_kv·head_dim), out as q. Memory does not grow with L².
struct Attention {
  static constexpr std::string_view kName = "attention";
  Tensor q, k, v;
  size_t sequences = 0;
  AttentionShape shape;
  Tensor out;
  void check() const;
  void operands(auto&& visit) const {
    visit(q, Access::kRead), visit(k, Access::kRead), visit(v, Access::kRead), visit(out, Access::kWrite);
  }
};

// One new token per sequence against its cache: q (S, n_heads·head_dim), cache k, v (S·capacity, n_kv·head_dim), the
// first `length` positions of each sequence filled (the new token's included).
struct AttentionCached {
  static constexpr std::string_view kName = "attention cached";
  Tensor q, k_cache, v_cache;
  size_t capacity = 0, length = 0;
  AttentionShape shape;
  Tensor out;
  void check() const;
  void operands(auto&& visit) const {
    visit(q, Access::kRead), visit(k_cache, Access::kRead), visit(v_cache, Access::kRead), visit(out, Access::kWrite);
  }
};

// Logits ------------------------------------------------------------------------------------------------------------

// Per row t of logits (T, V) with target token y_t (T, 1 i32): nll_t (T, 1) = logsumexp(logits_t) - logits_t[y_t], in
// nats.
struct TokenNll {
  static constexpr std::string_view kName = "token nll";
  Tensor logits, targets, nll;
  void check() const;
  void operands(auto&& visit) const {
    visit(logits, Access::kRead), visit(targets, Access::kRead), visit(nll, Access::kWrite);
  }
};

// Per row: out (T, 4) = KLD(p ‖ q) in nats (a token that p gives no chance adds nothing), nll of the target under p,
// under q, 1 if both have the same largest logit else 0.
struct CompareLogits {
  static constexpr std::string_view kName = "compare logits";
  Tensor p_logits, q_logits, targets, out;
  void check() const;
  void operands(auto&& visit) const {
    visit(p_logits, Access::kRead), visit(q_logits, Access::kRead), visit(targets, Access::kRead);
    visit(out, Access::kWrite);
  }
};

// Gradients ---------------------------------------------------------------------------------------------------------
// dx, dy, ...: the gradient of a loss to x, y, ... of the operation that the name tells.

// dx of RmsNorm from dy, for each run of n = weight.cols columns: with r = 1 / sqrt(mean(x²) + eps),
// dx = r · (w ∘ dy) - x · r³ / n · Σ(w ∘ dy ∘ x); with `accumulate`, dx += the same. dx may be dy.
struct RmsNormGradient {
  static constexpr std::string_view kName = "rms norm gradient";
  Tensor x, weight;
  float eps = 0;
  Tensor dy, dx;
  bool accumulate = false;
  void check() const;
  void operands(auto&& visit) const {
    visit(x, Access::kRead), visit(weight, Access::kRead), visit(dy, Access::kRead), visit(dx, Access::kWrite);
  }
};

// dgate = dy ∘ up ∘ act'(gate), dup = dy ∘ act(gate), all (T, n); dgate may be gate or dy, dup may be up.
struct GatedActivationGradient {
  static constexpr std::string_view kName = "gated activation gradient";
  Tensor gate, up;
  ActivationKind kind = ActivationKind::kSilu;
  Tensor dy, dgate, dup;
  void check() const;
  void operands(auto&& visit) const {
    visit(gate, Access::kRead), visit(up, Access::kRead), visit(dy, Access::kRead);
    visit(dgate, Access::kWrite), visit(dup, Access::kWrite);
  }
};

// dq, dk, dv of Attention from dout; shapes as there. Memory does not grow with L².
struct AttentionGradient {
  static constexpr std::string_view kName = "attention gradient";
  Tensor q, k, v, dout;
  size_t sequences = 0;
  AttentionShape shape;
  Tensor dq, dk, dv;
  void check() const;
  void operands(auto&& visit) const {
    visit(q, Access::kRead), visit(k, Access::kRead), visit(v, Access::kRead), visit(dout, Access::kRead);
    visit(dq, Access::kWrite), visit(dk, Access::kWrite), visit(dv, Access::kWrite);
  }
};

// The gradient of -log p[y] to the logits, for a token y drawn from p = softmax(logits) itself: p - onehot(y), in
// place. y is the first token at which the sum of p, taken in the order of the tokens, exceeds `uniforms` (T, 1; in [0,
// 1)), else the last token with p > 0. With softcap > 0, logits are cap · tanh(a / cap) and the gradient is that to a:
// times 1 - (logit / cap)².
struct SampledGradient {
  static constexpr std::string_view kName = "sampled gradient";
  Tensor logits, uniforms;
  float softcap = 0;
  void check() const;
  void operands(auto&& visit) const { visit(logits, Access::kWrite), visit(uniforms, Access::kRead); }
};

}  // namespace op

using Op =
    std::variant<op::Fill, op::Copy, op::PackWeight, op::TransposeInOrder, op::Linear, op::Gemm, op::AccumulateGram,
                 op::Symmetrize, op::Dot, op::RmsNorm, op::Add, op::Scale, op::GatedActivation, op::Softcap, op::Rope,
                 op::RowSquaredNorms, op::WeightedDifference, op::RowRatios, op::LargestMagnitude, op::Attention,
                 op::AttentionCached, op::TokenNll, op::CompareLogits, op::RmsNormGradient, op::GatedActivationGradient,
                 op::AttentionGradient, op::SampledGradient, op::InverseFactor, op::HeldOutWeights, op::PriceGroups,
                 op::GroupScale, op::RoundGroup, op::RefineGroup, op::Dequantize, op::PackBits, op::UnpackBits,
                 op::PackNibbles, op::UnpackNibbles, op::CountDifferences>;

std::string_view name_of(const Op& op);

// Floating-point operations of the matrix products of an operation, 2 per multiply-add; 0 for all others.
struct Work {
  double flops = 0;
  bool linear = false;  // of linears, Hessians and the like, not of attention
};
Work work_of(const Op& op);

}  // namespace bw::backend
