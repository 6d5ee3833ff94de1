// The operations on views of device memory, but the products (gemm.cuh) and the factor (factor.cuh). Each enqueues
// kernels in `stream`; what they do and what shapes must be stands in ops.h. No result varies from run to run: sums are
// taken in a fixed order.
#pragma once

#include <cstdint>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/scratch.cuh"
#include "backend/ops.h"
#include "base/half.h"

namespace bw::backend::BW_CUDA_NAMESPACE {

// The view of a tensor's elements.
template <typename T>
View<T> view_of(const Tensor& t) {
  if (t.empty()) return {nullptr, t.rows, t.cols, t.stride};
  return {reinterpret_cast<T*>(static_cast<std::byte*>(t.memory->pointer()) + t.offset_bytes), t.rows, t.cols,
          t.stride};
}
inline Floats floats(const Tensor& t) { return view_of<float>(t); }

// convert.cu
void fill(cudaStream_t stream, const Tensor& x, float value);
void copy(cudaStream_t stream, const Tensor& src, const Tensor& dst);
// dst = x rounded to nearest even
void to_bf16(cudaStream_t stream, ConstFloats x, View<BFloat16> dst);
// dst_t = factor_t · x_t; factors (rows, 1)
void scale_rows(cudaStream_t stream, ConstFloats x, ConstFloats factors, Floats dst);
void scale_rows(cudaStream_t stream, ConstFloats x, ConstFloats factors, View<BFloat16> dst);
void transpose_in_order(cudaStream_t stream, ConstFloats w, ConstInts order, Floats rows);
void symmetrize(cudaStream_t stream, ConstFloats h, Floats full);

// elementwise.cu
void add(cudaStream_t stream, ConstFloats x, Floats y);
// y_t += row, or y_t = row; row (1, cols)
void add_row(cudaStream_t stream, ConstFloats row, bool accumulate, Floats y);
void scale(cudaStream_t stream, Floats x, float factor);
// y_t = weight_t · (x_t - minus_t); weight (rows, 1)
void weighted_difference(cudaStream_t stream, ConstFloats x, ConstFloats minus, ConstFloats weight, Floats y);
void gated_activation(cudaStream_t stream, ConstFloats gate, ConstFloats up, ActivationKind kind, Floats y);
void softcap(cudaStream_t stream, Floats x, float cap);
void gated_activation_gradient(cudaStream_t stream, ConstFloats gate, ConstFloats up, ActivationKind kind,
                               ConstFloats dy, Floats dgate, Floats dup);
void rope(cudaStream_t stream, Floats x, size_t head_dim, ConstInts positions, ConstFloats cos_sin, bool inverse);

// reduce.cu
void rms_norm(cudaStream_t stream, ConstFloats x, ConstFloats weight, float eps, Floats y);
void rms_norm_gradient(cudaStream_t stream, ConstFloats x, ConstFloats weight, float eps, ConstFloats dy,
                       bool accumulate, Floats dx);
// minus: data null for 0
void row_squared_norms(cudaStream_t stream, ConstFloats x, ConstFloats minus, Floats out);
// numerator: data null for 1; sum: or null
void row_ratios(cudaStream_t stream, ConstFloats numerator, ConstFloats denominator, Floats out, double* sum);
void dot(cudaStream_t stream, Scratch& scratch, ConstFloats a, ConstFloats b, double* sum);
// *largest = the largest of it and of all |x|; NaN if one of them is
void largest_magnitude(cudaStream_t stream, Scratch& scratch, ConstFloats x, float* largest);
void count_differences(cudaStream_t stream, Scratch& scratch, ConstBytes a, ConstBytes b, int32_t* count);
// *sum += Σ values[i], i < n
void add_up(cudaStream_t stream, const double* values, size_t n, double* sum);

// attention.cu
void attention(cudaStream_t stream, const op::Attention& op);
void attention_cached(cudaStream_t stream, const op::AttentionCached& op);

// attention_gradient.cu
void attention_gradient(cudaStream_t stream, Scratch& scratch, const op::AttentionGradient& op);

// logits.cu; NaN for a target that is not in the vocabulary
void token_nll(cudaStream_t stream, ConstFloats logits, ConstInts targets, Floats nll);
void compare_logits(cudaStream_t stream, ConstFloats p, ConstFloats q, ConstInts targets, Floats out);
void sampled_gradient(cudaStream_t stream, Floats logits, ConstFloats uniforms, float softcap);

// held_out.cu
void held_out_weights(cudaStream_t stream, Scratch& scratch, const op::HeldOutWeights& op);

// groups.cu
void price_groups(cudaStream_t stream, Scratch& scratch, const op::PriceGroups& op);
void group_scale(cudaStream_t stream, const op::GroupScale& op);
void round_group(cudaStream_t stream, Scratch& scratch, const op::RoundGroup& op);

// refine.cu
void refine_group(cudaStream_t stream, Scratch& scratch, const op::RefineGroup& op);

// pack.cu
void dequantize(cudaStream_t stream, const op::Dequantize& op);
void pack_bits(cudaStream_t stream, ConstBytes codes, int bits, View<uint32_t> words);
void unpack_bits(cudaStream_t stream, View<const uint32_t> words, int bits, Bytes codes);
void pack_nibbles(cudaStream_t stream, ConstBytes codes, View<uint32_t> words);
void unpack_nibbles(cudaStream_t stream, View<const uint32_t> words, Bytes codes);

}  // namespace bw::backend::BW_CUDA_NAMESPACE
