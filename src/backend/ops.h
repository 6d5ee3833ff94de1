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

#include "backend/tensor.h"

namespace bw::backend {

enum class Access : uint8_t { kRead, kWrite };  // kWrite: or both

// Columns of codes, and of what is rounded to them, come in multiples of this: the formats pad them.
inline constexpr size_t kColumnStep = 32;
inline constexpr size_t kMaxGroupRows = 128;

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

// Quantization ------------------------------------------------------------------------------------------------------

// What InverseFactor leaves in `status` (1, 4) i32.
enum FactorStatus : size_t {
  kDampingSteps = 0,  // how often the damping was raised tenfold; kMaxDampingSteps + 1: h could not be factored, u is
                      // diagonal with 1 / sqrt(h_ii) and order is natural
  kDeadInputs = 1,    // zeros on the diagonal of h
  kNotFinite = 2,     // 1 + the first input i (row) whose h_ij, j >= i, is not finite or whose h_ii is negative; 0:
                      // none. Else the rest is the factor of the identity
  kReserved = 3,
};
inline constexpr int kMaxDampingSteps = 3;

// The triangular factor of the inverse Hessian that GPTQ works with. h (n, n), upper triangle; not changed. Zeros on
// its diagonal count as the mean m of the others (1 if there is none); order (n, 1) i32 sorts the diagonal falling,
// equal ones by index. u (n, n), upper triangular with zeros below: (H + damping·m·I)⁻¹ = Uᵀ U in that order.
// weights (n, 1) = 1 / u_ii². While the Cholesky factorization fails, the damping is raised tenfold, up to
// kMaxDampingSteps times. Frantar et al., "GPTQ", ICLR 2023, section 3.3, step 3; from one factorization of the
// reversed matrix (H = R Rᵀ with R upper gives U = R⁻¹), instead of factor, invert and factor again.
struct InverseFactor {
  static constexpr std::string_view kName = "inverse factor";
  Tensor h;
  float damping = 0;
  Tensor u, order, weights, status;
  void check() const;
  void operands(auto&& visit) const {
    visit(h, Access::kRead), visit(u, Access::kWrite), visit(order, Access::kWrite);
    visit(weights, Access::kWrite), visit(status, Access::kWrite);
  }
};

// Errors of rounding to nearest, for every group at every width and group size (at most kMaxGroupRows). rows (in, cols;
// a multiple of kColumnStep), weights (in, 1);
// errors (widths · sizes, groups; f64): row `width · sizes + size` holds, for each group of sizes[size] rows (the last
// may be shorter), Σ weight_r · (w - rounded)², with the scales that GroupScale and RoundGroup would choose; the rest
// of the row is undefined. groups >= in / the smallest size, rounded up.
struct PriceGroups {
  static constexpr std::string_view kName = "price groups";
  Tensor rows, weights;
  std::vector<int> widths;
  std::vector<uint32_t> sizes;
  Tensor errors;
  void check() const;
  void operands(auto&& visit) const {
    visit(rows, Access::kRead), visit(weights, Access::kRead), visit(errors, Access::kWrite);
  }
};

// The scale of one group of n <= kMaxGroupRows rows. rows (n, cols; a multiple of kColumnStep), weights (n, 1). For
// each column the scale s among kScaleTrials steps of max|w| / 2^(bits-1) with the least Σ_r weight_r (w - s·level)²,
// at most 65504 / 2^(bits-1); scale_max (1, 1; f16) is scale_max_for() of the largest of them, code_scales (1, 16) the
// scales of its 16 codes (see scale_grid.h). wanted (1, cols): scratch.
struct GroupScale {
  static constexpr std::string_view kName = "group scale";
  Tensor rows, weights;
  int bits = 0;
  Tensor wanted, scale_max, code_scales;
  void check() const;
  void operands(auto&& visit) const {
    visit(rows, Access::kRead), visit(weights, Access::kRead), visit(wanted, Access::kWrite);
    visit(scale_max, Access::kWrite), visit(code_scales, Access::kWrite);
  }
};

// Rounds one group of n rows and feeds the errors forward, in place, to all rows of the panel. panel (n + rest, cols):
// the group, then the rows that take its corrections. u (n, n + rest): U of the group's rows from the diagonal on.
// weights (n, 1), code_scales (1, 16) of GroupScale. For each column the scale code with the least weighted error is
// chosen (0 for a column of zeros; rounding of q·s to half is not looked at), then row after row: q = round(w / s)
// clamped, e = (w - half(q·s)) / u_ii, w_j -= e·u_ij for the rows j after it. The group's own rows of the panel are
// undefined afterwards; u left of its diagonal is not read. cols and n as for GroupScale. codes (n, cols; u8) = q +
// 2^(bits-1), scale_codes (1, cols; u8), errors (n, cols) = e, error (1, 1; f64) += Σ e².
struct RoundGroup {
  static constexpr std::string_view kName = "round group";
  Tensor panel, u, weights;
  int bits = 0;
  Tensor code_scales, codes, scale_codes, errors, error;
  void check() const;
  void operands(auto&& visit) const {
    visit(panel, Access::kWrite), visit(u, Access::kRead), visit(weights, Access::kRead);
    visit(code_scales, Access::kRead), visit(codes, Access::kWrite), visit(scale_codes, Access::kWrite);
    visit(errors, Access::kWrite), visit(error, Access::kWrite);
  }
};

// Weights that a loader computes from codes, for rows of one width: codes (n, cols; u8), scale_codes (groups, cols;
// u8), scale_max (groups, 1; f16), order (n, 1; i32), groups of group_size rows (the last may be shorter). w (out,
// in)[c][order[r]] = half((code - 2^(bits-1)) · scale), c < out <= cols; other columns of w are left alone.
struct Dequantize {
  static constexpr std::string_view kName = "dequantize";
  Tensor codes, scale_codes, scale_max, order;
  int bits = 0;
  uint32_t group_size = 0;
  Tensor w;
  void check() const;
  void operands(auto&& visit) const {
    visit(codes, Access::kRead), visit(scale_codes, Access::kRead), visit(scale_max, Access::kRead);
    visit(order, Access::kRead), visit(w, Access::kWrite);
  }
};

// words (rows · bits / 32, cols; i32): the codes (rows, cols; u8) of each column as one stream of `bits` bits each,
// lowest bit first. rows: a multiple of 32.
struct PackBits {
  static constexpr std::string_view kName = "pack bits";
  Tensor codes;
  int bits = 0;
  Tensor words;
  void check() const;
  void operands(auto&& visit) const { visit(codes, Access::kRead), visit(words, Access::kWrite); }
};

// The inverse of PackBits.
struct UnpackBits {
  static constexpr std::string_view kName = "unpack bits";
  Tensor words;
  int bits = 0;
  Tensor codes;
  void check() const;
  void operands(auto&& visit) const { visit(words, Access::kRead), visit(codes, Access::kWrite); }
};

// words (rows, cols / 8; i32): eight neighbouring codes (rows, cols; u8, below 16) a word, low nibble first.
struct PackNibbles {
  static constexpr std::string_view kName = "pack nibbles";
  Tensor codes, words;
  void check() const;
  void operands(auto&& visit) const { visit(codes, Access::kRead), visit(words, Access::kWrite); }
};

// The inverse of PackNibbles.
struct UnpackNibbles {
  static constexpr std::string_view kName = "unpack nibbles";
  Tensor words, codes;
  void check() const;
  void operands(auto&& visit) const { visit(words, Access::kRead), visit(codes, Access::kWrite); }
};

// count (1, 1; i32) += number of elements in which a and b (u8, same shape) differ.
struct CountDifferences {
  static constexpr std::string_view kName = "count differences";
  Tensor a, b, count;
  void check() const;
  void operands(auto&& visit) const { visit(a, Access::kRead), visit(b, Access::kRead), visit(count, Access::kWrite); }
};

}  // namespace op

using Op = std::variant<op::Fill, op::Copy, op::PackWeight, op::TransposeInOrder, op::Linear, op::Gemm,
                        op::AccumulateGram, op::Symmetrize, op::Dot, op::RmsNorm, op::Add, op::Scale,
                        op::GatedActivation, op::Softcap, op::Rope, op::RowSquaredNorms, op::RowRatios, op::Attention,
                        op::AttentionCached, op::TokenNll, op::CompareLogits, op::RmsNormGradient,
                        op::GatedActivationGradient, op::AttentionGradient, op::SampledGradient, op::InverseFactor,
                        op::PriceGroups, op::GroupScale, op::RoundGroup, op::Dequantize, op::PackBits, op::UnpackBits,
                        op::PackNibbles, op::UnpackNibbles, op::CountDifferences>;

std::string_view name_of(const Op& op);

// Floating-point operations of the matrix products of an operation, 2 per multiply-add; 0 for all others.
struct Work {
  double flops = 0;
  bool linear = false;  // of linears, Hessians and the like, not of attention
};
Work work_of(const Op& op);

}  // namespace bw::backend
