// The gradient of causal attention of whole rows. For each block of queries, the weights of all keys that it sees are
// computed again: O(block · L) memory, and five GEMMs. A task is a KV head of a sequence, since all queries of its
// heads add to its keys and values.
#include <algorithm>

#include "backend/cpu/matmul.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_gradient.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bw::backend::cpu::HWY_NAMESPACE {

// Scores of n visible keys become the weights of their softmax. With a softcap, slope[i] is that of the cap at score i.
void softmax_row(float* scores, size_t n, float softcap, float* slope) {
  if (softcap != 0.0f) {
    const FloatTag d;
    const FloatVec cap = hn::Set(d, softcap), inverse = hn::Set(d, 1.0f / softcap), one = hn::Set(d, 1.0f);
    map(scores, slope, n, [=](FloatVec v) HWY_ATTR { return hn::Tanh(FloatTag(), hn::Mul(v, inverse)); });
    map(slope, scores, n, [=](FloatVec t) HWY_ATTR { return hn::Mul(cap, t); });
    map(slope, slope, n, [=](FloatVec t) HWY_ATTR { return hn::NegMulAdd(t, t, one); });
  }
  const float sum = softmax_weights(scores, n, largest(scores, n));
  scale_to(scores, 1.0f / sum, scores, n);
}

// Gradients to n weights become those to the scores before the softcap.
void score_gradient_row(const float* weights, const float* slope, size_t n, bool capped, float* gradients) {
  const FloatVec mean = hn::Set(FloatTag(), dot(weights, gradients, n));
  map2(weights, gradients, gradients, n,
       [mean](FloatVec w, FloatVec g) HWY_ATTR { return hn::Mul(w, hn::Sub(g, mean)); });
  if (capped) map2(slope, gradients, gradients, n, [](FloatVec s, FloatVec g) HWY_ATTR { return hn::Mul(s, g); });
}

}  // namespace bw::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bw::backend::cpu {

HWY_EXPORT(softmax_row);
HWY_EXPORT(score_gradient_row);
HWY_EXPORT(scale_to);

namespace {

constexpr size_t kTileRows = 128;  // queries of one block: positions × query heads of a KV head

// Of one sequence: q and dout of the heads that share one KV head, k and v of that head.
struct Inputs {
  ConstView q, k, v, dout;
};
struct Gradients {
  View dq, dk, dv;
};

// Elements between rows of n, so that equal columns of neighbouring rows do not meet in the same sets of the cache.
size_t spread_stride(size_t n) { return (ceil_div(n, 16) | 1) * 16; }

// Rows of a block: head by head, position by position.
class GradientTile {
 public:
  GradientTile(const AttentionShape& shape, size_t length, size_t most_positions)
      : shape_(shape), group_(shape.n_heads / shape.n_kv_heads) {
    const size_t rows = most_positions * group_;
    const size_t seen =
        shape.window == 0 || shape.window >= length ? length : std::min(length, most_positions + shape.window - 1);
    const size_t stride = spread_stride(seen);
    q_ = Matrix<float>(rows, shape.head_dim);
    dout_ = Matrix<float>(rows, shape.head_dim);
    dq_ = Matrix<float>(rows, shape.head_dim);
    weights_ = Matrix<float>(rows, stride);
    gradients_ = Matrix<float>(rows, stride);
    if (shape.softcap != 0.0f) slopes_ = Matrix<float>(1, stride);
  }

  // The block of positions [first, first + positions).
  void run(const Inputs& in, size_t first, size_t positions, const Gradients& out) {
    positions_ = positions;
    rows_ = positions * group_;
    gather(in.q.rows_slice(first, positions), shape_.scale, q_);
    gather(in.dout.rows_slice(first, positions), 1.0f, dout_);
    const size_t begin = oldest_key(first), n = first + positions - begin, d = shape_.head_dim;
    const size_t stride = spread_stride(n);
    const SgemmOperand q{q_.data(), d, false}, dout{dout_.data(), d, false};
    float *const weights = weights_.data(), *const gradients = gradients_.data();
    sgemm(q, {in.k.row(begin), in.k.stride, true}, rows_, n, d, 1.0f, 0.0f, weights, stride);
    sgemm(dout, {in.v.row(begin), in.v.stride, true}, rows_, n, d, 1.0f, 0.0f, gradients, stride);
    for (size_t r = 0; r < rows_; ++r) {
      differentiate(weights + r * stride, gradients + r * stride, first + r % positions_, begin, n);
    }
    sgemm({weights, stride, true}, dout, n, d, rows_, 1.0f, 1.0f, out.dv.row(begin), out.dv.stride);
    sgemm({gradients, stride, true}, q, n, d, rows_, 1.0f, 1.0f, out.dk.row(begin), out.dk.stride);
    sgemm({gradients, stride, false}, {in.k.row(begin), in.k.stride, false}, rows_, d, n, shape_.scale, 0.0f,
          dq_.data(), d);
    scatter(dq_, out.dq.rows_slice(first, positions));
  }

 private:
  size_t oldest_key(size_t position) const {
    return shape_.window != 0 && position >= shape_.window ? position - shape_.window + 1 : 0;
  }

  // Scores and gradients to the weights, of keys [begin, begin + n), become weights and gradients to the scores; 0 for
  // keys that are not visible.
  void differentiate(float* weights, float* gradients, size_t position, size_t begin, size_t n) {
    const size_t from = oldest_key(position) - begin, to = position + 1 - begin;
    for (float* x : {weights, gradients}) std::fill(x, x + from, 0.0f), std::fill(x + to, x + n, 0.0f);
    HWY_DYNAMIC_DISPATCH(softmax_row)(weights + from, to - from, shape_.softcap, slopes_.data());
    HWY_DYNAMIC_DISPATCH(score_gradient_row)
    (weights + from, slopes_.data(), to - from, shape_.softcap != 0.0f, gradients + from);
  }

  void gather(ConstView heads, float factor, Matrix<float>& tile) const {
    const size_t d = shape_.head_dim;
    for (size_t r = 0; r < rows_; ++r) {
      HWY_DYNAMIC_DISPATCH(scale_to)(heads.row(r % positions_) + r / positions_ * d, factor, tile.row(r), d);
    }
  }

  void scatter(const Matrix<float>& tile, View heads) const {
    const size_t d = shape_.head_dim;
    for (size_t r = 0; r < rows_; ++r) std::copy_n(tile.row(r), d, heads.row(r % positions_) + r / positions_ * d);
  }

  const AttentionShape& shape_;
  size_t group_, positions_ = 0, rows_ = 0;
  Matrix<float> q_, dout_, dq_;
  Matrix<float> weights_, gradients_;  // rows apart as the block's number of keys wants it
  Matrix<float> slopes_;               // of one row
};

void set_zero(View x) {
  for (size_t r = 0; r < x.rows; ++r) std::fill_n(x.row(r), x.cols, 0.0f);
}

}  // namespace

void attention_gradient(ThreadPool& pool, const op::AttentionGradient& op) {
  const AttentionShape& shape = op.shape;
  const size_t length = op.q.rows / op.sequences, d = shape.head_dim, group = shape.n_heads / shape.n_kv_heads;
  const ConstView q = floats(op.q), k = floats(op.k), v = floats(op.v), dout = floats(op.dout);
  const View dq = floats(op.dq), dk = floats(op.dk), dv = floats(op.dv);
  const size_t per_block = std::min(length, std::max<size_t>(16, kTileRows / group));
  pool.parallel_for(op.sequences * shape.n_kv_heads, [&](size_t task, size_t) {
    const size_t head = task % shape.n_kv_heads, row = task / shape.n_kv_heads * length;
    const auto part = [&](auto view, size_t heads) {
      return view.rows_slice(row, length).cols_slice(head * heads * d, heads * d);
    };
    const Inputs in{part(q, group), part(k, 1), part(v, 1), part(dout, group)};
    const Gradients out{part(dq, group), part(dk, 1), part(dv, 1)};
    set_zero(out.dk);
    set_zero(out.dv);
    GradientTile tile(shape, length, per_block);
    for (size_t first = 0; first < length; first += per_block) {
      tile.run(in, first, std::min(per_block, length - first), out);
    }
  });
}

}  // namespace bw::backend::cpu
#endif  // HWY_ONCE
