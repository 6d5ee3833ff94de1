// Causal attention of whole rows, block of queries by block of keys, with a running softmax (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022). The two products are GEMMs.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/matmul.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "backend/cpu/simd-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bw::backend::cpu::HWY_NAMESPACE {

// Scores of one query against a block of keys, of which [begin, end) are visible, become weights relative to the
// running maximum; the others become 0. `output` (head_dim), the sum so far of weighted values, is put on the new
// scale.
void softmax_step(float* scores, size_t n, size_t begin, size_t end, float softcap, float* running_max,
                  float* running_sum, float* output, size_t head_dim) {
  std::fill(scores, scores + begin, 0.0f);
  std::fill(scores + end, scores + n, 0.0f);
  if (begin == end) return;
  float* x = scores + begin;
  const size_t count = end - begin;
  if (softcap != 0.0f) {
    const FloatTag d;
    const FloatVec cap = hn::Set(d, softcap), inverse = hn::Set(d, 1.0f / softcap);
    map(x, x, count, [=](FloatVec v) HWY_ATTR { return hn::Mul(cap, hn::Tanh(FloatTag(), hn::Mul(v, inverse))); });
  }
  const float before = *running_max, now = std::max(before, largest(x, count));
  const float sum = softmax_weights(x, count, now);
  const float shrink = before == now ? 1.0f : std::exp(before - now);  // 0 at the first block
  *running_max = now;
  *running_sum = *running_sum * shrink + sum;
  if (shrink == 1.0f) return;
  scale_to(output, shrink, output, head_dim);
}

}  // namespace bw::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bw::backend::cpu {

HWY_EXPORT(softmax_step);
HWY_EXPORT(scale_to);

namespace {

constexpr size_t kTileRows = 128;  // queries of one tile: block of positions × query heads of a KV head
constexpr size_t kKeys = 256;

// One block of queries, all heads that share one KV head. Rows of the tile: head by head, position by position.
class AttentionTile {
 public:
  AttentionTile(const AttentionShape& shape, size_t positions)
      : shape_(shape),
        positions_(positions),
        group_(shape.n_heads / shape.n_kv_heads),
        rows_(positions * group_),
        q_(rows_, shape.head_dim),
        scores_(rows_, kKeys),
        output_(rows_, shape.head_dim, true),
        max_(rows_, -std::numeric_limits<float>::infinity()),
        sum_(rows_, 0.0f) {}

  // q, out: the block's positions, columns of the heads; k, v: all positions of the row, columns of the KV head. The
  // block begins at position `first`.
  void run(ConstView q, ConstView k, ConstView v, size_t first, View out) {
    const size_t d = shape_.head_dim;
    for (size_t r = 0; r < rows_; ++r) {
      HWY_DYNAMIC_DISPATCH(scale_to)(q.row(r % positions_) + r / positions_ * d, shape_.scale, q_.row(r), d);
    }
    const size_t end = first + positions_;
    for (size_t key = oldest_key(first); key < end; key += kKeys)
      add_keys(k, v, first, key, std::min(kKeys, end - key));
    for (size_t r = 0; r < rows_; ++r) {
      HWY_DYNAMIC_DISPATCH(scale_to)(output_.row(r), 1.0f / sum_[r], out.row(r % positions_) + r / positions_ * d, d);
    }
  }

 private:
  size_t oldest_key(size_t position) const {
    return shape_.window != 0 && position >= shape_.window ? position - shape_.window + 1 : 0;
  }

  void add_keys(ConstView k, ConstView v, size_t first, size_t key, size_t n) {
    const size_t d = shape_.head_dim;
    sgemm({q_.data(), d, false}, {k.row(key), k.stride, true}, rows_, n, d, 1.0f, 0.0f, scores_.data(), n);
    for (size_t r = 0; r < rows_; ++r) {
      const size_t position = first + r % positions_;
      const size_t visible_end = std::clamp(position + 1, key, key + n) - key;
      const size_t visible_begin = std::min(std::max(oldest_key(position), key) - key, visible_end);
      HWY_DYNAMIC_DISPATCH(softmax_step)
      (scores_.data() + r * n, n, visible_begin, visible_end, shape_.softcap, &max_[r], &sum_[r], output_.row(r), d);
    }
    sgemm({scores_.data(), n, false}, {v.row(key), v.stride, false}, rows_, d, n, 1.0f, 1.0f, output_.data(), d);
  }

  const AttentionShape& shape_;
  size_t positions_, group_, rows_;
  Matrix<float> q_, scores_, output_;
  std::vector<float> max_, sum_;
};

}  // namespace

void attention(ThreadPool& pool, ConstView q, ConstView k, ConstView v, size_t sequences, const AttentionShape& shape,
               View out) {
  const size_t length = q.rows / sequences, d = shape.head_dim;
  const size_t group = shape.n_heads / shape.n_kv_heads;
  const size_t per_block = std::max<size_t>(16, kTileRows / group);
  const size_t blocks = ceil_div(length, per_block);
  pool.parallel_for(sequences * shape.n_kv_heads * blocks, [&](size_t task, size_t) {
    const size_t block = blocks - 1 - task % blocks;  // the longest first, so that threads end together
    const size_t head = task / blocks % shape.n_kv_heads, sequence = task / blocks / shape.n_kv_heads;
    const size_t first = block * per_block, count = std::min(per_block, length - first);
    const size_t row = sequence * length;
    AttentionTile tile(shape, count);
    tile.run(q.rows_slice(row + first, count).cols_slice(head * group * d, group * d),
             k.rows_slice(row, length).cols_slice(head * d, d), v.rows_slice(row, length).cols_slice(head * d, d),
             first, out.rows_slice(row + first, count).cols_slice(head * group * d, group * d));
  });
}

}  // namespace bw::backend::cpu
#endif  // HWY_ONCE
