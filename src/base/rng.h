// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011).
// The same (seed, stream, index) gives the same number on any machine and at any thread count.
#pragma once

#include <array>
#include <cstdint>

namespace bw {

// Four 32-bit numbers for `counter` under `key`.
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// A stream of numbers; copying it copies its place.
class Rng {
 public:
  explicit Rng(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  uint32_t next_u32() {
    if (at_ == 4) {
      block_ = philox({static_cast<uint32_t>(index_), static_cast<uint32_t>(index_ >> 32),
                       static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                      {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
      ++index_;
      at_ = 0;
    }
    return block_[at_++];
  }
  // Uniform in [0, 1), with 24 bits.
  float next_float() { return static_cast<float>(next_u32() >> 8) * 0x1p-24f; }
  // Uniform in [0, 1), with 53 bits.
  double next_double() {
    const uint64_t hi = next_u32(), lo = next_u32();
    return static_cast<double>((hi << 21) ^ (lo >> 11)) * 0x1p-53;
  }
  // Uniform in [0, n); n must not be 0. (Multiply-shift: the bias is below n / 2^32.)
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((uint64_t{next_u32()} * n) >> 32); }

 private:
  uint64_t seed_, stream_, index_ = 0;
  std::array<uint32_t, 4> block_{};
  int at_ = 4;
};

}  // namespace bw
