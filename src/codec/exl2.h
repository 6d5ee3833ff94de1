// The EXL2 form of a linear: exact sizes, packing and unpacking. The format's facts are in docs/exl2.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "io/safetensors.h"
#include "quant/gptq.h"

namespace bw::codec {

inline constexpr size_t kColumnAlign = 32;
inline constexpr uint32_t kMaxIn = 65535;

// The five tensors of one linear on the host's side, as they stand in a file.
struct Exl2Linear {
  uint32_t in = 0, out = 0;         // out without padding
  backend::HostTensor q_weight;     // (Σ rows·bits/32, padded out) i32: bit stream down each column
  backend::HostTensor q_scale;      // (groups, padded out / 8) i32: eight 4-bit codes a word, low nibble first
  backend::HostTensor q_scale_max;  // (groups, 1) f16
  std::vector<int16_t> q_groups;    // (2 · groups): bits, first row of q_weight
  std::vector<int32_t> q_invperm;   // (in): stored row of input feature i
};

// A linear that is packed on the device and on its way to the host.
struct PackedLinear {
  quant::Layout layout;
  uint32_t in = 0, out = 0;
  backend::HostTensor q_weight, q_scale, q_scale_max;  // as of Exl2Linear
  backend::HostTensor order;                           // (in, 1) i32: input feature of each stored row
  backend::HostTensor differences;                     // (1, 1) i32: codes that unpacking does not give back
};

// Bits stored for a linear's five tensors (bias apart), padding columns included: what the file holds.
uint64_t stored_bits(const quant::Layout& layout, uint32_t out);
// True if a linear of these dimensions can be stored at all (in a multiple of 32 and at most kMaxIn).
bool can_store(size_t in, size_t out);

// Enqueues packing, unpacking again to compare, and the downloads.
PackedLinear pack(backend::Backend& device, const quant::QuantizedLinear& q);
// Waits for the downloads. Throws Error(kInternal) beginning with `name` if unpacking did not give the codes back.
Exl2Linear finish(backend::Backend& device, PackedLinear packed, const std::string& name);
// Exact inverse of pack and finish (order, codes, scale codes, scale_max; layout with the same groups), on the device.
// Throws Error(kModel) beginning with `name` if the tensors contradict each other: they may come from a damaged file.
quant::QuantizedLinear unpack(backend::Backend& device, Exl2Linear packed, const std::string& name);

// The tensors of linear `key` as they will stand in a file, in this order: q_weight, q_scale, q_scale_max, q_groups,
// q_invperm.
std::vector<io::TensorPlan> tensor_plans(const std::string& key, const quant::Layout& layout, uint32_t out);
// Bytes of the i-th of them.
std::span<const std::byte> tensor_bytes(const Exl2Linear& packed, size_t i);

// True if linear `key` is stored as EXL2.
bool is_stored(const io::ShardSet& tensors, const std::string& key);
// The groups of stored linear `key` as a layout; the same errors.
quant::Layout stored_layout(const io::ShardSet& tensors, const std::string& key);
// Reads linear `key` with `out` columns without padding, into memory that `device` uploads from. Throws Error(kModel)
// naming it.
Exl2Linear load(backend::Backend& device, const io::ShardSet& tensors, const std::string& key, uint32_t out);

}  // namespace bw::codec
