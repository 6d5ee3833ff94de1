// The EXL2 form of a linear: exact sizes, packing and unpacking. The format's facts are in docs/exl2.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "quant/gptq.h"

namespace bw::codec {

inline constexpr size_t kColumnAlign = 32;
inline constexpr uint32_t kMaxIn = 65535;

// The five tensors of one linear.
struct Exl2Linear {
  uint32_t in = 0, out = 0;        // out without padding
  Matrix<uint32_t> q_weight;       // (Σ rows·bits/32, padded out): bit stream down each column
  Matrix<uint32_t> q_scale;        // (groups, padded out / 8): eight 4-bit codes a word, low nibble first
  std::vector<Half> q_scale_max;   // (groups)
  std::vector<int16_t> q_groups;   // (2 · groups): bits, first row of q_weight
  std::vector<int32_t> q_invperm;  // (in): stored row of input feature i
};

// Bits stored for a linear's five tensors (bias apart), padding columns included: what the file holds.
uint64_t stored_bits(const quant::Layout& layout, uint32_t out);
// True if a linear of these dimensions can be stored at all (in a multiple of 32 and at most kMaxIn).
bool can_store(size_t in, size_t out);

Exl2Linear pack(ThreadPool& pool, const quant::QuantizedLinear& q);
// Exact inverse of pack (order, codes, scale codes, scale_max; layout with the same groups).
// Throws Error(kModel) beginning with `name` if the tensors contradict each other: they may come from a damaged file.
quant::QuantizedLinear unpack(ThreadPool& pool, const Exl2Linear& packed, const std::string& name);

// The groups of stored tensors as a layout; the same errors.
quant::Layout stored_layout(const Exl2Linear& packed, const std::string& name);

// The tensors of linear `key` as they will stand in a file, in this order: q_weight, q_scale, q_scale_max, q_groups,
// q_invperm.
std::vector<io::TensorPlan> tensor_plans(const std::string& key, const quant::Layout& layout, uint32_t out);
// Bytes of the i-th of them.
std::span<const std::byte> tensor_bytes(const Exl2Linear& packed, size_t i);

// True if linear `key` is stored as EXL2.
bool is_stored(const io::ShardSet& tensors, const std::string& key);
// Reads linear `key` with `out` columns without padding. Throws Error(kModel) naming it.
Exl2Linear load(const io::ShardSet& tensors, const std::string& key, uint32_t out);

}  // namespace bw::codec
