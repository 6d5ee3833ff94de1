#include "backend/scale_grid.h"

#include <algorithm>

namespace bw::backend {

Half scale_max_for(float top) {
  constexpr uint16_t kLargest = 0x7bff;
  uint16_t bits = std::min(static_cast<uint16_t>(to_half(top)), kLargest);
  // Rounding of top itself, of the division and of the product may each fall short of top: go up until code 15 reaches
  // it.
  while (bits < kLargest && code_scales(Half(bits)).back() < top) ++bits;
  return Half(bits);
}

}  // namespace bw::backend
