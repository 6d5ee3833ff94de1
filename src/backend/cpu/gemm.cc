// General products, and the gram matrix of a batch.
#include "backend/cpu/gemm.h"

#include <algorithm>

#include "backend/cpu/parallel.h"

namespace bw::backend::cpu {
namespace {

constexpr size_t kTile = 256;
// Tokens of a gram product that are summed at once; the sum over tokens is cut at its multiples.
constexpr size_t kGramTokens = 1024;

// Blocks of the gram matrix are stripes that begin at the diagonal, where they are computed whole: low ones where the
// matrix is small, so that little is computed in vain; wide ones, since products of few columns are slower.
constexpr size_t kStripeColumns = 1024;
size_t stripe_rows(size_t n) { return n <= 1024 ? 64 : 128; }

struct Block {
  size_t first, count;
};

Block block_at(size_t i, size_t size, size_t n) { return {i * size, std::min(size, n - i * size)}; }

struct GramBlock {
  Block rows, cols;
};

// Blocks that cover the upper triangle of an (n, n) matrix.
std::vector<GramBlock> triangle_blocks(size_t n) {
  std::vector<GramBlock> blocks;
  const size_t size = stripe_rows(n);
  for (size_t row = 0; row < n; row += size) {
    for (size_t col = row; col < n; col += kStripeColumns) {
      blocks.push_back({{row, std::min(size, n - row)}, {col, std::min(kStripeColumns, n - col)}});
    }
  }
  return blocks;
}

// Strides of op(m): (row, column).
std::pair<size_t, size_t> strides_of(size_t stride, bool transposed) {
  return transposed ? std::pair<size_t, size_t>{1, stride} : std::pair<size_t, size_t>{stride, 1};
}

}  // namespace

ConstView Gemm::prepared(ConstView x, Operands operands, std::shared_ptr<Memory>& storage) {
  storage = blocks_.take(x.rows * x.cols * sizeof(float));
  const View dense(static_cast<float*>(storage->pointer()), x.rows, x.cols);
  if (operands == Operands::kRoundedF32) {
    round_to_bf16(pool_, x, dense);
  } else {
    copy(pool_, x, dense);
  }
  return dense;
}

ConstView Gemm::rounded(ConstView x, Operands operands, std::shared_ptr<Memory>& storage) {
  return operands == Operands::kRoundedF32 ? prepared(x, operands, storage) : x;
}

const BFloat16* Gemm::converted(ConstView x, std::shared_ptr<Memory>& storage) {
  storage = blocks_.take(x.rows * x.cols * sizeof(BFloat16));
  auto* const data = static_cast<BFloat16*>(storage->pointer());
  to_bf16(pool_, x, MatrixView<BFloat16>(data, x.rows, x.cols));
  return data;
}

void Gemm::gemm(ConstView a, bool transpose_a, ConstView b, bool transpose_b, View c, float alpha, float beta,
                Operands operands) {
  const size_t k = transpose_a ? a.rows : a.cols;
  if (k == 0) return beta == 0.0f ? fill(pool_, c, 0.0f) : scale(pool_, c, beta);
  std::shared_ptr<Memory> a_storage, b_storage;
  a = rounded(a, operands, a_storage);
  b = rounded(b, operands, b_storage);
  const BFloat16 *a16 = nullptr, *b16 = nullptr;
  if (operands == Operands::kBF16) {
    a16 = converted(a, a_storage);
    b16 = converted(b, b_storage);
  }
  const size_t row_blocks = ceil_div(c.rows, kTile), col_blocks = ceil_div(c.cols, kTile);
  pool_.parallel_for(row_blocks * col_blocks, [&](size_t task, size_t) {
    const Block rows = block_at(task / col_blocks, kTile, c.rows), cols = block_at(task % col_blocks, kTile, c.cols);
    float* out = c.row(rows.first) + cols.first;
    if (operands != Operands::kBF16) {
      const float* pa = a.data + rows.first * strides_of(a.stride, transpose_a).first;
      const float* pb = b.data + cols.first * strides_of(b.stride, transpose_b).second;
      sgemm({pa, a.stride, transpose_a}, {pb, b.stride, transpose_b}, rows.count, cols.count, k, alpha, beta, out,
            c.stride);
      return;
    }
    const auto [a_row, a_col] = strides_of(a.cols, transpose_a);
    const auto [b_row, b_col] = strides_of(b.cols, transpose_b);
    const TileShape shape{TileType::kBF16, rows.count, cols.count, k,     a_row, a_col,
                          b_row,           b_col,      cols.count, false, false};
    AlignedBuffer<float> product(rows.count * cols.count);
    matmuls_.get(shape)->run(a16 + rows.first * a_row, b16 + cols.first * b_col, nullptr, product.data());
    scaled_sum(ConstView(product.data(), rows.count, cols.count), alpha, beta,
               View(out, rows.count, cols.count, c.stride));
  });
}

void Gemm::accumulate_gram(ConstView x, const ConstView* weight, View h, Operands operands) {
  const size_t n = x.cols;
  const std::vector<GramBlock> blocks = triangle_blocks(n);
  const auto scaled = blocks_.take(weight ? std::min(x.rows, kGramTokens) * n * sizeof(float) : 0);
  for (size_t first = 0; first < x.rows; first += kGramTokens) {
    const size_t tokens = std::min(kGramTokens, x.rows - first);
    ConstView left = x.rows_slice(first, tokens), right = left;
    if (weight) {
      const View copy(static_cast<float*>(scaled->pointer()), tokens, n);
      scale_rows(pool_, left, weight->rows_slice(first, tokens), copy);
      right = copy;
    }
    std::shared_ptr<Memory> left_storage, right_storage;
    left = rounded(left, operands, left_storage);
    right = weight ? rounded(right, operands, right_storage) : left;
    const BFloat16 *left16 = nullptr, *right16 = nullptr;
    if (operands == Operands::kBF16) {
      left16 = converted(left, left_storage);
      right16 = weight ? converted(right, right_storage) : left16;
    }
    pool_.parallel_for(blocks.size(), [&](size_t task, size_t) {
      const auto [rows, cols] = blocks[task];
      float* out = h.row(rows.first) + cols.first;
      if (operands == Operands::kBF16) {
        const TileShape shape{TileType::kBF16, rows.count, cols.count, tokens, 1, n, n, 1, h.stride, false, true};
        matmuls_.get(shape)->run(left16 + rows.first, right16 + cols.first, nullptr, out);
      } else {
        sgemm({left.data + rows.first, left.stride, true}, {right.data + cols.first, right.stride, false}, rows.count,
              cols.count, tokens, 1.0f, 1.0f, out, h.stride);
      }
    });
  }
}

}  // namespace bw::backend::cpu
