// y = x · wᵀ against packed weights.
#include <algorithm>

#include "backend/cpu/gemm.h"
#include "backend/cpu/parallel.h"

namespace bw::backend::cpu {
namespace {

// Tiles of these sizes run as fast as one large product (bench/ops.cc). Narrow panels where the layer is narrow, so
// that a few tokens make work for several threads.
constexpr size_t kTileRows = 128;
size_t width_of_panels(size_t out) { return out <= 1024 ? 128 : 256; }

// From so many rows on, tiles are whole rows of y, written in place; below, panels, which pass through a buffer.
constexpr size_t kManyRows = 2048;
// Rows converted at a time, which bounds the copy.
constexpr size_t kChunkRows = 2048;

const void* row_of(const void* a, const PackedWeight& w, size_t row) {
  const size_t bytes = w.in() * (w.type() == TileType::kBF16 ? sizeof(BFloat16) : sizeof(float));
  return static_cast<const std::byte*>(a) + row * bytes;
}

}  // namespace

PackedWeight::PackedWeight(size_t out, size_t in, Operands operands)
    : Weight(out, in),
      panel_width_(width_of_panels(out)),
      n_panels_(ceil_div(out, panel_width_)),
      operands_(operands) {}

void PackedWeight::pack(ThreadPool& pool, ConstView w) {
  BW_CHECK(w.rows == out() && w.cols == in() && data_.size() == 0);
  if (in() == 0 || out() == 0) return;
  const size_t last = out() - (n_panels_ - 1) * panel_width_;
  panel_bytes_ = packed_bytes(type(), panel_width_, in());
  data_ = AlignedBuffer<std::byte>((n_panels_ - 1) * panel_bytes_ + packed_bytes(type(), last, in()));
  whole_ = packed_panels_join(type(), panel_width_, out(), in());
  Matrix<float> rounded;
  if (operands_ == Operands::kRoundedF32) {
    rounded = Matrix<float>(w.rows, w.cols);
    round_to_bf16(pool, w, rounded.view());
    w = rounded.view();
  }
  pool.parallel_for(n_panels_, [&](size_t i, size_t) {
    const size_t first = i * panel_width_;
    pack_panel(type(), w.rows_slice(first, std::min(panel_width_, out() - first)), data_.data() + i * panel_bytes_);
  });
}

void Gemm::linear(ConstView x, const PackedWeight& w, const float* bias, View y, bool accumulate) {
  BW_CHECK(w.in() != 0);
  const bool many = x.rows >= kManyRows && w.whole() && y.stride == y.cols;
  for (size_t first = 0; first < x.rows; first += kChunkRows) {
    const size_t count = std::min(kChunkRows, x.rows - first);
    const ConstView chunk = x.rows_slice(first, count);
    std::shared_ptr<Memory> storage;
    const void* a = chunk.data;
    if (w.operands() == Operands::kBF16) {
      a = converted(chunk, storage);
    } else if (w.operands() == Operands::kRoundedF32 || x.stride != x.cols) {
      a = prepared(chunk, w.operands(), storage).data;
    }
    const View out = y.rows_slice(first, count);
    if (many) {
      linear_whole_rows(a, w, bias, out, accumulate);
    } else {
      linear_panels(a, w, bias, out, accumulate);
    }
  }
}

void Gemm::linear_whole_rows(const void* a, const PackedWeight& w, const float* bias, View y, bool accumulate) {
  const size_t k = w.in(), n = w.out(), blocks = ceil_div(y.rows, kTileRows);
  TileShape shape{w.type(), kTileRows, n, k, k, 1, 0, 0, n, bias != nullptr, accumulate};
  const auto matmul = matmuls_.get(shape);
  shape.m = y.rows - (blocks - 1) * kTileRows;
  const auto last = matmuls_.get(shape);
  pool_.parallel_for(blocks, [&](size_t block, size_t) {
    const size_t row = block * kTileRows;
    (block + 1 == blocks ? last : matmul)->run(row_of(a, w, row), w.panel(0), bias, y.row(row));
  });
}

void Gemm::linear_panels(const void* a, const PackedWeight& w, const float* bias, View y, bool accumulate) {
  const size_t k = w.in(), width = w.panel_width(), blocks = ceil_div(y.rows, kTileRows);
  pool_.parallel_for(blocks * w.n_panels(), [&](size_t task, size_t) {
    const size_t block = task / w.n_panels(), panel = task % w.n_panels();
    const size_t row = block * kTileRows, col = panel * width;
    const size_t m = std::min(kTileRows, y.rows - row), n = std::min(width, w.out() - col);
    const auto matmul = matmuls_.get({w.type(), m, n, k, k, 1, 0, 0, n, bias != nullptr, false});
    AlignedBuffer<float> tile(m * n);
    matmul->run(row_of(a, w, row), w.panel(panel), bias ? bias + col : nullptr, tile.data());
    scaled_sum(ConstView(tile.data(), m, n), 1.0f, accumulate ? 1.0f : 0.0f, View(y.row(row) + col, m, n, y.stride));
  });
}

}  // namespace bw::backend::cpu
