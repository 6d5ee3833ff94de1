#include "backend/ops.h"

#include <algorithm>

namespace bw::backend {
namespace {

using enum DType;

void check_shape(const Tensor& t, size_t rows, size_t cols, DType dtype = kF32) {
  BW_CHECK(t.dtype == dtype && t.rows == rows && t.cols == cols);
}
void check_same(const Tensor& a, const Tensor& b, DType dtype = kF32) { check_shape(a, b.rows, b.cols, dtype); }
void check_float(const Tensor& t) { BW_CHECK(t.dtype == kF32); }
// Empty, or of this shape.
void check_optional(const Tensor& t, size_t rows, size_t cols, DType dtype = kF32) {
  if (t.memory) check_shape(t, rows, cols, dtype);
}

// (rows, 1) without gaps.
void check_column(const Tensor& t, size_t rows, DType dtype = kF32) {
  check_shape(t, rows, 1, dtype);
  BW_CHECK(rows <= 1 || t.stride == 1);
}
// Rows of codes or of what is to be rounded: as columns are stored, and no more than a group may have.
void check_group(const Tensor& rows, size_t count) { BW_CHECK(rows.cols % kColumnStep == 0 && count <= kMaxGroupRows); }

bool is_float_type(DType type) { return type == kF32 || type == kBF16 || type == kF16; }
size_t groups_of(size_t rows, size_t group_size) { return (rows + group_size - 1) / group_size; }
void check_bits(int bits) { BW_CHECK(bits >= 2 && bits <= 8); }

void check_heads(const AttentionShape& s) {
  BW_CHECK(s.head_dim > 0 && s.n_kv_heads > 0 && s.n_heads > 0 && s.n_heads % s.n_kv_heads == 0);
}

// Keys that the queries of one row of `length` see, together.
double visible_keys(size_t length, size_t window) {
  const double n = static_cast<double>(length);
  if (window == 0 || window >= length) return n * (n + 1) / 2;
  const double w = static_cast<double>(window);
  return w * (w + 1) / 2 + (n - w) * w;
}

double product_flops(size_t m, size_t n, size_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

struct WorkOf {
  Work operator()(const op::Linear& o) const { return {product_flops(o.x.rows, o.w->out(), o.w->in()), true}; }
  Work operator()(const op::Gemm& o) const {
    return {product_flops(o.c.rows, o.c.cols, o.transpose_a ? o.a.rows : o.a.cols), true};
  }
  Work operator()(const op::AccumulateGram& o) const {
    return {product_flops(o.x.rows, o.x.cols, o.x.cols + 1) / 2, true};
  }
  Work operator()(const op::Attention& o) const {
    if (o.sequences == 0) return {};
    return {4.0 * static_cast<double>(o.sequences * o.q.cols) * visible_keys(o.q.rows / o.sequences, o.shape.window),
            false};
  }
  Work operator()(const op::AttentionCached& o) const {
    const size_t seen = o.shape.window == 0 ? o.length : std::min(o.length, o.shape.window);
    return {4.0 * static_cast<double>(o.q.rows * o.q.cols) * static_cast<double>(seen), false};
  }
  // Five products of the shape of the two forward.
  Work operator()(const op::AttentionGradient& o) const {
    return {2.5 * work_of(op::Attention{o.q, o.k, o.v, o.sequences, o.shape, o.dq}).flops, false};
  }
  // n³/3 multiply-adds for the factorization, n³/6 for the inverse.
  Work operator()(const op::InverseFactor& o) const {
    const double n = static_cast<double>(o.h.rows);
    return {n * n * n, true};
  }
  Work operator()(const auto&) const { return {}; }
};

}  // namespace

std::string_view name_of(const Op& op) {
  return std::visit([](const auto& o) { return o.kName; }, op);
}

Work work_of(const Op& op) { return std::visit(WorkOf{}, op); }

namespace op {

void Fill::check() const { BW_CHECK(x.dtype == kF32 || x.dtype == kF64 || x.dtype == kI32); }

void Copy::check() const {
  BW_CHECK(src.rows == dst.rows && src.cols == dst.cols);
  BW_CHECK(src.dtype == dst.dtype || (is_float_type(src.dtype) && is_float_type(dst.dtype)));
}

void PackWeight::check() const {
  BW_CHECK(packed != nullptr);
  check_shape(w, packed->out(), packed->in());
}

void TransposeInOrder::check() const {
  check_float(w);
  if (order.memory) check_column(order, w.cols, kI32);
  BW_CHECK(rows.dtype == kF32 && rows.rows == w.cols && rows.cols >= w.rows);
}

void Linear::check() const {
  BW_CHECK(w != nullptr && w->in() > 0);
  check_shape(x, x.rows, w->in());
  check_optional(bias, 1, w->out());
  check_shape(y, x.rows, w->out());
}

void Gemm::check() const {
  for (const Tensor* t : {&a, &b, &c}) check_float(*t);
  const size_t m = transpose_a ? a.cols : a.rows, k = transpose_a ? a.rows : a.cols;
  BW_CHECK(k == (transpose_b ? b.cols : b.rows));
  check_shape(c, m, transpose_b ? b.rows : b.cols);
}

void AccumulateGram::check() const {
  check_float(x);
  check_optional(weight, x.rows, 1);
  check_shape(h, x.cols, x.cols);
}

void Symmetrize::check() const {
  check_shape(h, h.rows, h.rows);
  check_same(full, h);
}

void Dot::check() const {
  check_float(a);
  check_same(b, a);
  check_shape(sum, 1, 1, kF64);
}

void RmsNorm::check() const {
  check_float(x);
  BW_CHECK(weight.dtype == kF32 && weight.rows == 1 && weight.cols > 0 && x.cols % weight.cols == 0);
  check_same(y, x);
}

void Add::check() const {
  check_float(x);
  check_same(y, x);
}

void Scale::check() const { check_float(x); }

void GatedActivation::check() const {
  check_float(y);
  check_same(gate, y);
  check_same(up, y);
}

void Softcap::check() const {
  check_float(x);
  BW_CHECK(cap > 0);
}

void Rope::check() const {
  check_float(x);
  BW_CHECK(head_dim > 0 && head_dim % 2 == 0 && x.cols % head_dim == 0);
  check_shape(positions, x.rows, 1, kI32);
  check_shape(cos_sin, cos_sin.rows, head_dim);
}

void RowSquaredNorms::check() const {
  check_float(x);
  check_optional(minus, x.rows, x.cols);
  check_shape(out, x.rows, 1);
}

void WeightedDifference::check() const {
  check_float(x);
  check_same(minus, x);
  check_shape(weight, x.rows, 1);
  check_same(y, x);
}

void LargestMagnitude::check() const {
  check_float(x);
  check_shape(largest, 1, 1);
}

void RowRatios::check() const {
  check_shape(denominator, denominator.rows, 1);
  check_optional(numerator, denominator.rows, 1);
  check_same(out, denominator);
  check_optional(sum, 1, 1, kF64);
}

void Attention::check() const {
  check_heads(shape);
  BW_CHECK(sequences > 0 ? q.rows % sequences == 0 : q.rows == 0);
  check_shape(q, q.rows, shape.n_heads * shape.head_dim);
  check_shape(k, q.rows, shape.n_kv_heads * shape.head_dim);
  check_same(v, k);
  check_same(out, q);
}

void AttentionCached::check() const {
  check_heads(shape);
  BW_CHECK(length > 0 && length <= capacity && k_cache.stride == v_cache.stride);
  check_shape(q, q.rows, shape.n_heads * shape.head_dim);
  check_shape(k_cache, q.rows * capacity, shape.n_kv_heads * shape.head_dim);
  check_same(v_cache, k_cache);
  check_same(out, q);
}

void TokenNll::check() const {
  BW_CHECK(logits.dtype == kF32 && logits.cols > 0);
  check_shape(targets, logits.rows, 1, kI32);
  check_shape(nll, logits.rows, 1);
}

void CompareLogits::check() const {
  BW_CHECK(p_logits.dtype == kF32 && p_logits.cols > 0);
  check_same(q_logits, p_logits);
  check_shape(targets, p_logits.rows, 1, kI32);
  check_shape(out, p_logits.rows, 4);
}

void RmsNormGradient::check() const {
  RmsNorm{x, weight, eps, dx}.check();
  check_same(dy, x);
}

void GatedActivationGradient::check() const {
  GatedActivation{gate, up, kind, dy}.check();
  check_same(dgate, gate);
  check_same(dup, gate);
}

void AttentionGradient::check() const {
  Attention{q, k, v, sequences, shape, dout}.check();
  check_same(dq, q);
  check_same(dk, k);
  check_same(dv, k);
}

void SampledGradient::check() const {
  BW_CHECK(logits.dtype == kF32 && logits.cols > 0 && softcap >= 0);
  check_column(uniforms, logits.rows);
}

void InverseFactor::check() const {
  const size_t n = h.rows;
  BW_CHECK(n > 0 && damping > 0);
  check_shape(h, n, n);
  check_shape(u, n, n);
  check_column(order, n, kI32);
  check_column(weights, n);
  check_shape(status, 1, 4, kI32);
  check_optional(ordered, n, n);
}

void HeldOutWeights::check() const {
  check_float(y);
  check_column(gains, y.cols);
  check_column(own_gains, y.cols);
  BW_CHECK(share > 0 && share <= 1);
  BW_CHECK(all_gains.dtype == kF32 && all_gains.cols == 1);
  check_column(weights, y.rows);
  check_column(held_out, y.rows);
}

void PriceGroups::check() const {
  check_float(rows);
  check_column(weights, rows.rows);
  for (const uint32_t size : sizes) check_group(rows, size);
  BW_CHECK(!sizes.empty() && errors.dtype == kF64 && errors.rows == widths.size() * sizes.size());
  for (const int bits : widths) check_bits(bits);
  for (const uint32_t size : sizes) BW_CHECK(size > 0 && errors.cols >= groups_of(rows.rows, size));
}

void GroupScale::check() const {
  check_float(rows);
  check_bits(bits);
  check_column(weights, rows.rows);
  check_group(rows, rows.rows);
  check_shape(wanted, 1, rows.cols);
  check_shape(scale_max, 1, 1, kF16);
  check_shape(code_scales, 1, 16);
}

void RoundGroup::check() const {
  const size_t n = codes.rows;
  check_bits(bits);
  BW_CHECK(n > 0 && panel.dtype == kF32 && panel.rows >= n);
  check_shape(u, n, panel.rows);
  check_column(weights, n);
  check_group(panel, n);
  check_shape(code_scales, 1, 16);
  check_shape(codes, n, panel.cols, kU8);
  check_shape(scale_codes, 1, panel.cols, kU8);
  check_shape(errors, n, panel.cols);
  check_shape(error, 1, 1, kF64);
}

void RefineGroup::check() const {
  const size_t n = codes.rows;
  check_bits(bits);
  check_float(gradient);
  check_group(gradient, n);
  check_shape(h, n, n);
  check_shape(scale_max, 1, 1, kF16);
  check_shape(scale_codes, 1, gradient.cols, kU8);
  check_shape(codes, gradient.rows, gradient.cols, kU8);
  check_same(error, gradient);
  check_shape(sum, 1, 1, kF64);
}

void Dequantize::check() const {
  check_bits(bits);
  BW_CHECK(group_size > 0 && codes.dtype == kU8 && w.dtype == kF32 && w.rows <= codes.cols);
  const size_t groups = groups_of(codes.rows, group_size);
  check_shape(scale_codes, groups, codes.cols, kU8);
  check_shape(scale_max, groups, 1, kF16);
  check_column(order, codes.rows, kI32);
}

void PackBits::check() const {
  check_bits(bits);
  BW_CHECK(codes.dtype == kU8 && codes.rows % 32 == 0);
  check_shape(words, codes.rows / 32 * static_cast<size_t>(bits), codes.cols, kI32);
}

void UnpackBits::check() const { PackBits{codes, bits, words}.check(); }

void PackNibbles::check() const {
  BW_CHECK(codes.dtype == kU8 && codes.cols % 8 == 0);
  check_shape(words, codes.rows, codes.cols / 8, kI32);
}

void UnpackNibbles::check() const { PackNibbles{codes, words}.check(); }

void CountDifferences::check() const {
  BW_CHECK(a.dtype == kU8);
  check_same(b, a, kU8);
  check_shape(count, 1, 1, kI32);
}

}  // namespace op
}  // namespace bw::backend
