// IEEE binary16 and bfloat16 as 16-bit patterns, converted with round to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace bw {

enum class Half : uint16_t {};      // IEEE binary16 bits
enum class BFloat16 : uint16_t {};  // upper half of an IEEE binary32

constexpr float to_float(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

// NaN stays NaN (quiet); values beyond the largest finite one become infinite.
constexpr BFloat16 to_bfloat16(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return BFloat16((u >> 16) | 0x40u);
  return BFloat16((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

constexpr float to_float(Half h) {
  const uint32_t u = static_cast<uint32_t>(h);
  const uint32_t sign = (u & 0x8000u) << 16;
  const uint32_t exponent = (u >> 10) & 0x1fu;
  const uint32_t mantissa = u & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Subnormal: mantissa * 2^-24 is exact in binary32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

inline constexpr float kLargestHalf = 65504.0f;

constexpr Half to_half(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return Half(sign | 0x7e00u);
  if (a >= 0x477ff000u) return Half(sign | 0x7c00u);  // rounds beyond 65504
  if (a < 0x38800000u) {                              // below 2^-14: subnormal or zero
    if (a < 0x33000000u) return Half(sign);           // below half of 2^-24
    const uint32_t shift = 126 - (a >> 23);           // 14..24 bits go
    const uint32_t m = (a & 0x7fffffu) | 0x800000u;
    const uint32_t rest = m & ((1u << shift) - 1);
    const uint32_t halfway = 1u << (shift - 1);
    uint32_t r = m >> shift;
    if (rest > halfway || (rest == halfway && (r & 1u))) ++r;
    return Half(sign | r);
  }
  const uint32_t r = a - 0x38000000u + 0xfffu + ((a >> 13) & 1u);
  return Half(sign | (r >> 13));
}

// x rounded to binary16 and back.
constexpr float round_to_half(float x) { return to_float(to_half(x)); }

}  // namespace bw
