// The operations of the CPU device on views of host memory. Shapes have been checked (op::X::check); what they must
// be stands in backend/ops.h. No result depends on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "backend/ops.h"
#include "base/thread_pool.h"

namespace bw::backend::cpu {

using View = MatrixView<float>;
using ConstView = MatrixView<const float>;
using ConstIndexView = MatrixView<const int32_t>;

class Gemm;

// The elements of a tensor whose memory is host memory; it must have the type's dtype. U32 words are stored as i32.
template <typename T>
MatrixView<T> view_of(const Tensor& t) {
  using Element = std::conditional_t<std::is_same_v<std::remove_const_t<T>, uint32_t>, int32_t, std::remove_const_t<T>>;
  BW_CHECK(t.dtype == DTypeOf<Element>::value);
  if (t.empty()) return {nullptr, t.rows, t.cols, t.stride};
  return {reinterpret_cast<T*>(static_cast<std::byte*>(t.memory->pointer()) + t.offset_bytes), t.rows, t.cols,
          t.stride};
}
inline View floats(const Tensor& t) { return view_of<float>(t); }

// convert.cc
void fill(ThreadPool& pool, View x, float value);
void copy(ThreadPool& pool, ConstView x, View y);
// Round to nearest even.
void to_bf16(ThreadPool& pool, ConstView x, MatrixView<BFloat16> y);
void round_to_bf16(ThreadPool& pool, ConstView x, View y);
void from_bf16(ThreadPool& pool, MatrixView<const BFloat16> x, View y);
void to_f16(ThreadPool& pool, ConstView x, MatrixView<Half> y);
void from_f16(ThreadPool& pool, MatrixView<const Half> x, View y);

// norm.cc
void rms_norm(ThreadPool& pool, ConstView x, std::span<const float> weight, float eps, View y);
// minus: null for 0
void row_squared_norms(ThreadPool& pool, ConstView x, const ConstView* minus, View out);
// numerator: null for ones; sum: may be null
void row_ratios(const ConstView* numerator, ConstView denominator, View out, double* sum);
// The largest of `least` >= 0 and of all |x|; NaN if one of them is.
float largest_magnitude(ThreadPool& pool, ConstView x, float least);
// Σ a ∘ b
double dot(ThreadPool& pool, ConstView a, ConstView b);

// activation.cc
void add(ThreadPool& pool, ConstView x, View y);
void scale(ThreadPool& pool, View x, float factor);
// y_t = factor_t * x_t
void scale_rows(ThreadPool& pool, ConstView x, ConstView factors, View y);
// y_t = weight_t * (x_t - minus_t)
void weighted_difference(ThreadPool& pool, ConstView x, ConstView minus, ConstView weight, View y);
// y = alpha * x + beta * y; y is not read if beta is 0. On the calling thread.
void scaled_sum(ConstView x, float alpha, float beta, View y);
void gated_activation(ThreadPool& pool, ConstView gate, ConstView up, ActivationKind kind, View y);
void softcap(ThreadPool& pool, View x, float cap);

// rope.cc
void rope(ThreadPool& pool, View x, size_t head_dim, ConstIndexView positions, ConstView cos_sin, bool inverse);

// attention.cc, attention_cached.cc
void attention(ThreadPool& pool, ConstView q, ConstView k, ConstView v, size_t sequences, const AttentionShape& shape,
               View out);
void attention_cached(ThreadPool& pool, ConstView q, ConstView k_cache, ConstView v_cache, size_t capacity,
                      size_t length, const AttentionShape& shape, View out);

// logits.cc
void token_nll(ThreadPool& pool, ConstView logits, ConstIndexView targets, View nll);
void compare_logits(ThreadPool& pool, ConstView p, ConstView q, ConstIndexView targets, View out);

// gradients.cc, attention_gradient.cc
void rms_norm_gradient(ThreadPool& pool, ConstView x, std::span<const float> weight, float eps, ConstView dy,
                       bool accumulate, View dx);
void gated_activation_gradient(ThreadPool& pool, ConstView gate, ConstView up, ActivationKind kind, ConstView dy,
                               View dgate, View dup);
void sampled_gradient(ThreadPool& pool, View logits, ConstView uniforms, float softcap);
// At least one sequence.
void attention_gradient(ThreadPool& pool, const op::AttentionGradient& op);

// factor.cc
void symmetrize(ThreadPool& pool, ConstView h, View full);
void inverse_factor(ThreadPool& pool, Gemm& gemm, const op::InverseFactor& op);

// held_out.cc
void held_out_weights(ThreadPool& pool, const op::HeldOutWeights& op);

// groups.cc
// order: null for rows as they stand
void transpose_in_order(ThreadPool& pool, ConstView w, const int32_t* order, View rows);
void price_groups(ThreadPool& pool, const op::PriceGroups& op);
void group_scale(ThreadPool& pool, const op::GroupScale& op);
void refine_group(ThreadPool& pool, const op::RefineGroup& op);
void round_group(ThreadPool& pool, const op::RoundGroup& op);
void dequantize(ThreadPool& pool, const op::Dequantize& op);

// pack.cc
void pack_bits(ThreadPool& pool, MatrixView<const uint8_t> codes, int bits, MatrixView<uint32_t> words);
void unpack_bits(ThreadPool& pool, MatrixView<const uint32_t> words, int bits, MatrixView<uint8_t> codes);
void pack_nibbles(ThreadPool& pool, MatrixView<const uint8_t> codes, MatrixView<uint32_t> words);
void unpack_nibbles(ThreadPool& pool, MatrixView<const uint32_t> words, MatrixView<uint8_t> codes);
int32_t count_differences(ThreadPool& pool, MatrixView<const uint8_t> a, MatrixView<const uint8_t> b);

}  // namespace bw::backend::cpu
