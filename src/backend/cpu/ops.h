// The operations of the CPU device on views of host memory. Shapes have been checked by the caller (CpuBackend); what
// they must be stands in backend.h. No result depends on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "base/half.h"
#include "base/matrix.h"
#include "base/thread_pool.h"

namespace bw::backend::cpu {

using View = MatrixView<float>;
using ConstView = MatrixView<const float>;
using ConstIndexView = MatrixView<const int32_t>;

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
void row_squared_norms(ThreadPool& pool, ConstView x, View out);

// activation.cc
void add(ThreadPool& pool, ConstView x, View y);
void scale(ThreadPool& pool, View x, float factor);
// y_t = factor_t * x_t
void scale_rows(ThreadPool& pool, ConstView x, ConstView factors, View y);
// y = alpha * x + beta * y; y is not read if beta is 0. On the calling thread.
void scaled_sum(ConstView x, float alpha, float beta, View y);
void gated_activation(ThreadPool& pool, ConstView gate, ConstView up, ActivationKind kind, View y);
void softcap(ThreadPool& pool, View x, float cap);

// rope.cc
void rope(ThreadPool& pool, View x, size_t head_dim, ConstIndexView positions, ConstView cos_sin);

// attention.cc, attention_cached.cc
void attention(ThreadPool& pool, ConstView q, ConstView k, ConstView v, size_t sequences, const AttentionShape& shape,
               View out);
void attention_cached(ThreadPool& pool, ConstView q, ConstView k_cache, ConstView v_cache, size_t capacity,
                      size_t length, const AttentionShape& shape, View out);

// logits.cc
void token_nll(ThreadPool& pool, ConstView logits, ConstIndexView targets, View nll);
void compare_logits(ThreadPool& pool, ConstView p, ConstView q, ConstIndexView targets, View out);

}  // namespace bw::backend::cpu
