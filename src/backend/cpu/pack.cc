// Codes as packed words, and back.
#include <algorithm>
#include <numeric>
#include <vector>

#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

namespace bw::backend::cpu {
namespace {

constexpr size_t kColumnTile = 32;  // columns of a task: their words share cache lines

// body(column) for every column, tile by tile.
template <typename Body>
void for_columns(ThreadPool& pool, size_t cols, const Body& body) {
  pool.parallel_for(ceil_div(cols, kColumnTile), [&](size_t tile, size_t) {
    for (size_t c = tile * kColumnTile; c < std::min(cols, (tile + 1) * kColumnTile); ++c) body(c);
  });
}

}  // namespace

void pack_bits(ThreadPool& pool, MatrixView<const uint8_t> codes, int bits, MatrixView<uint32_t> words) {
  for_columns(pool, codes.cols, [&](size_t c) {
    uint64_t pending = 0;
    int filled = 0;
    uint32_t* out = words.data + c;
    for (size_t r = 0; r < codes.rows; ++r) {
      pending |= uint64_t{codes(r, c)} << filled;
      filled += bits;
      if (filled < 32) continue;
      *out = static_cast<uint32_t>(pending);
      out += words.stride;
      pending >>= 32;
      filled -= 32;
    }
  });
}

void unpack_bits(ThreadPool& pool, MatrixView<const uint32_t> words, int bits, MatrixView<uint8_t> codes) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for_columns(pool, codes.cols, [&](size_t c) {
    uint64_t pending = 0;
    int left = 0;
    const uint32_t* in = words.data + c;
    for (size_t r = 0; r < codes.rows; ++r) {
      if (left < bits) {
        pending |= static_cast<uint64_t>(*in) << left;
        in += words.stride;
        left += 32;
      }
      codes(r, c) = static_cast<uint8_t>(pending & mask);
      pending >>= bits;
      left -= bits;
    }
  });
}

void pack_nibbles(ThreadPool& pool, MatrixView<const uint8_t> codes, MatrixView<uint32_t> words) {
  parallel_rows(pool, codes.rows, codes.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) {
      for (size_t w = 0; w < words.cols; ++w) {
        uint32_t nibbles = 0;
        for (uint32_t i = 0; i < 8; ++i) nibbles |= uint32_t{codes(r, 8 * w + i)} << (4 * i);
        words(r, w) = nibbles;
      }
    }
  });
}

void unpack_nibbles(ThreadPool& pool, MatrixView<const uint32_t> words, MatrixView<uint8_t> codes) {
  parallel_rows(pool, codes.rows, codes.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) {
      for (size_t c = 0; c < codes.cols; ++c)
        codes(r, c) = static_cast<uint8_t>(words(r, c / 8) >> (4 * (c % 8)) & 15u);
    }
  });
}

int32_t count_differences(ThreadPool& pool, MatrixView<const uint8_t> a, MatrixView<const uint8_t> b) {
  std::vector<int32_t> counts(a.rows, 0);
  parallel_rows(pool, a.rows, a.cols, [&](size_t first, size_t count) {
    for (size_t r = first; r < first + count; ++r) {
      for (size_t c = 0; c < a.cols; ++c) counts[r] += a(r, c) != b(r, c);
    }
  });
  return std::accumulate(counts.begin(), counts.end(), 0);
}

}  // namespace bw::backend::cpu
