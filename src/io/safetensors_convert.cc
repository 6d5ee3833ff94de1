#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "bitwright/error.h"
#include "io/printable.h"
#include "io/safetensors.h"

namespace bw::io {
namespace {

// Tensor data may lie at any address: read through memcpy, which compiles to a plain load.
template <typename T>
T load(const std::byte* bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
  return value;
}

// to_float(Half) without branches, so that the compiler vectorises the loop. Subnormals: with the exponent of 2^-14 put
// in, the mantissa is 2^-14 too large, and the difference is exact and needs no subnormal operand. (Masks, not `?:`:
// the compiler would guard the subtraction by a branch.)
inline float half_to_float(uint16_t half) {
  constexpr uint32_t kRebias = 112u << 23;
  constexpr uint32_t kExponent = 0x1fu << 23;
  const uint32_t magnitude = (half & 0x7fffu) << 13;
  const uint32_t is_special = 0u - static_cast<uint32_t>((magnitude & kExponent) == kExponent);
  const uint32_t is_subnormal = 0u - static_cast<uint32_t>((magnitude & kExponent) == 0);
  const uint32_t normal = magnitude + kRebias + (is_special & kRebias);
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude + (113u << 23)) - 0x1p-14f);
  return std::bit_cast<float>((subnormal & is_subnormal) | (normal & ~is_subnormal) | (half & 0x8000u) << 16);
}

}  // namespace

void convert_to_float(TensorType type, std::span<const std::byte> bytes, std::span<float> out) {
  const size_t n = out.size();
  BW_CHECK(bytes.size() == n * element_size(type));
  const std::byte* in = bytes.data();
  float* to = out.data();
  switch (type) {
    case TensorType::kF32:
      if (n != 0) std::memcpy(to, in, bytes.size());
      return;
    case TensorType::kF16:
      for (size_t i = 0; i < n; ++i) to[i] = half_to_float(load<uint16_t>(in, i));
      return;
    case TensorType::kBF16:
      for (size_t i = 0; i < n; ++i) to[i] = to_float(BFloat16{load<uint16_t>(in, i)});
      return;
    case TensorType::kF64:
      for (size_t i = 0; i < n; ++i) to[i] = static_cast<float>(load<double>(in, i));
      return;
    default:
      throw Error(ErrorCode::kModel,
                  "cannot read " + std::string(type_name(type)) + " as floats: F32, F16, BF16 or F64 expected");
  }
}

void read_floats(const TensorData& tensor, std::span<float> out) {
  BW_CHECK(out.size() == tensor.entry->elements());
  try {
    convert_to_float(tensor.type(), tensor.bytes, out);
  } catch (const Error& error) {
    throw Error(error.code(), "tensor " + printable(tensor.entry->name) + ": " + error.what());
  }
}

}  // namespace bw::io
