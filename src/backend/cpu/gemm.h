// Matrix products of the CPU device, cut into tiles.
#pragma once

#include <memory>
#include <vector>

#include "backend/cpu/matmul.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/ops.h"

namespace bw::backend::cpu {

// How operands of a product are rounded and stored. Without bfloat16 hardware, operands are rounded to bfloat16 and
// multiplied as floats: the same numbers, up to the order of summation.
enum class Operands : uint8_t { kF32, kBF16, kRoundedF32 };

// A packed weight: panels of `panel_width` outputs (the last may be narrower), packed one after the other.
class PackedWeight final : public Weight {
 public:
  // Empty, to be packed once.
  PackedWeight(size_t out, size_t in, Operands operands);
  // w (out, in)
  void pack(ThreadPool& pool, ConstView w);
  Operands operands() const { return operands_; }
  TileType type() const { return operands_ == Operands::kBF16 ? TileType::kBF16 : TileType::kF32; }
  size_t panel_width() const { return panel_width_; }
  size_t n_panels() const { return n_panels_; }
  const std::byte* panel(size_t i) const { return data_.data() + i * panel_bytes_; }
  bool whole() const { return whole_; }  // panel(0) is also the packed whole

 private:
  size_t panel_width_, n_panels_, panel_bytes_ = 0;
  Operands operands_;
  bool whole_ = false;
  AlignedBuffer<std::byte> data_;
};

class Gemm {
 public:
  // `blocks` lends the memory for copies of operands.
  Gemm(ThreadPool& pool, BlockCache& blocks) : pool_(pool), blocks_(blocks) {}

  // See ops.h. bias: (out) or null.
  void linear(ConstView x, const PackedWeight& w, const float* bias, View y, bool accumulate);
  void gemm(ConstView a, bool transpose_a, ConstView b, bool transpose_b, View c, float alpha, float beta,
            Operands operands);
  void accumulate_gram(ConstView x, const ConstView* weight, View h, Operands operands);

 private:
  // a: dense rows of the type of the packed weight, (y.rows, in).
  void linear_whole_rows(const void* a, const PackedWeight& w, const float* bias, View y, bool accumulate);
  void linear_panels(const void* a, const PackedWeight& w, const float* bias, View y, bool accumulate);
  // x as dense rows in `storage`; rounded for kRoundedF32.
  ConstView prepared(ConstView x, Operands operands, std::shared_ptr<Memory>& storage);
  // x as `operands` wants it: rounded, for kRoundedF32, into `storage`; else as it is.
  ConstView rounded(ConstView x, Operands operands, std::shared_ptr<Memory>& storage);
  const BFloat16* converted(ConstView x, std::shared_ptr<Memory>& storage);

  ThreadPool& pool_;
  BlockCache& blocks_;
  TileMatmuls matmuls_;
};

}  // namespace bw::backend::cpu
