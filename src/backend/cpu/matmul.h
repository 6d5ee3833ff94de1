// Products of one tile through oneDNN, on the thread that calls. Parallelism lies above: tiles are tasks of our own
// pool, cut by shapes alone, so that the bytes of a result do not depend on the number of threads.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/matrix.h"

namespace bw::backend::cpu {

// What a tile's operands are stored as; the result is always float.
enum class TileType : uint8_t { kF32, kBF16 };

// C (m, n) = A (m, k) · B (k, n), a tile with all its strides (in elements). oneDNN's fast path wants dense rows: a_row
// == k and c_row == n for a packed B; anything else works, but slowly.
struct TileShape {
  TileType type = TileType::kF32;
  size_t m = 0, n = 0, k = 0;
  size_t a_row = 0, a_col = 0;
  size_t b_row = 0, b_col = 0;  // both 0: packed by pack_panel
  size_t c_row = 0;
  bool bias = false;        // + bias (n)
  bool accumulate = false;  // + C
  auto operator<=>(const TileShape&) const = default;
};

// A prepared product; shared by all threads.
class TileMatmul {
 public:
  virtual ~TileMatmul() = default;
  virtual void run(const void* a, const void* b, const float* bias, float* c) const = 0;
};

// Makes each shape's product once. Thread-safe.
class TileMatmuls {
 public:
  std::shared_ptr<const TileMatmul> get(const TileShape& shape);

 private:
  std::mutex mutex_;
  std::map<TileShape, std::shared_ptr<const TileMatmul>> made_;
};

// Packed operands B = wᵀ of weights w (n, k), in the order that products of type `type` read fastest. Thread-safe.
size_t packed_bytes(TileType type, size_t n, size_t k);
void pack_panel(TileType type, MatrixView<const float> w, std::byte* out);
// Whether packed panels of `panel` outputs, one after the other, are the packed whole of n outputs.
bool packed_panels_join(TileType type, size_t panel, size_t n, size_t k);

// C (m, n) = alpha · op(A) · op(B) + beta · C, float, on the thread that calls. Leading dimensions as stored.
struct SgemmOperand {
  const float* data;
  size_t stride;
  bool transposed;
};
void sgemm(SgemmOperand a, SgemmOperand b, size_t m, size_t n, size_t k, float alpha, float beta, float* c,
           size_t c_stride);

// True if the processor multiplies bfloat16.
bool cpu_multiplies_bf16();

}  // namespace bw::backend::cpu
