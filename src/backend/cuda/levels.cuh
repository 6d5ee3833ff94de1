// The levels that groups are rounded to, as the kernels of groups.cu and refine.cu see them. Both give a block kColumns
// columns, side by side, and kCodes rows of threads.
#pragma once

#include "backend/cuda/launch.cuh"
#include "backend/scale_grid.h"
#include "base/half.h"

namespace bw::backend::BW_CUDA_NAMESPACE {

inline constexpr unsigned kColumns = 32;
inline constexpr unsigned kCodes = kScaleCodes;

// Levels of a width, and how values are rounded to them.
struct Levels {
  float low, high;
  __device__ explicit Levels(int bits) : low(-static_cast<float>(1 << (bits - 1))), high(-low - 1) {}
  __device__ float count() const { return -low; }
  __device__ float round(float x, float inverse) const { return fminf(fmaxf(rintf(x * inverse), low), high); }
};

inline __device__ float inverse_of(float scale) { return scale > 0 ? 1.0f / scale : 0.0f; }

// See scale_grid.h.
inline __device__ float code_scale(Half scale_max, unsigned code) {
  const float unit = round_to_half(to_float(scale_max) / 256.0f);
  return round_to_half(static_cast<float>((code + 1) * (code + 1)) * unit);
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
