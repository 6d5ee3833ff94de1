// The layouts among which the allocation chooses for one linear.
#pragma once

#include <cstdint>
#include <vector>

#include "quant/price.h"

namespace bw::codec {

struct Candidate {
  quant::Layout layout;
  uint64_t bits = 0;  // stored, see stored_bits (and the bias, where there is one)
  double price = 0;   // by the table
};

// Every layout of falling widths at steps of its group size (32, 64 or 128) that lies on the convex hull of size and
// price, thinned to steps of at least `min_step` bits a weight, and the uniform layouts of every width and group size.
// Sorted by size, then price. out: columns without padding. extra_bits are added to each size (the bias).
std::vector<Candidate> candidates(const quant::PriceTable& table, uint32_t out, uint64_t extra_bits,
                                  double min_step = 0.02);

// The uniform layouts of every width and group size, at price 0.
std::vector<Candidate> uniform_candidates(uint32_t in, uint32_t out, uint64_t extra_bits);

}  // namespace bw::codec
