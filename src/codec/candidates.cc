#include "codec/candidates.h"

#include <algorithm>
#include <limits>

#include "codec/exl2.h"

namespace bw::codec {
namespace {

using quant::kBitWidths;
using quant::kWidths;

// Finds hull points of one group size.
class HullSearch {
 public:
  HullSearch(const quant::PriceTable& table, uint32_t group_size, uint32_t out, uint64_t extra_bits, double min_step)
      : table_(table),
        group_size_(group_size),
        size_(quant::group_size_index(group_size)),
        out_(out),
        extra_bits_(extra_bits),
        min_gap_(min_step * table.in * out) {}

  // Appends the layouts on the hull between the widest and the narrowest uniform one.
  void run(std::vector<Candidate>& found) {
    const Candidate small = make(quant::uniform_layout(table_.in, kBitWidths[kWidths - 1], group_size_));
    const Candidate large = make(quant::uniform_layout(table_.in, kBitWidths[0], group_size_));
    found.push_back(small);
    found.push_back(large);
    split(small, large, found);
  }

 private:
  Candidate make(quant::Layout layout) const {
    Candidate c{std::move(layout), 0, 0};
    c.bits = stored_bits(c.layout, out_) + extra_bits_;
    c.price = table_.price(c.layout);
    return c;
  }

  // The layout between two hull points that lies farthest below their connecting line, if any; and so on on both sides.
  void split(const Candidate& small, const Candidate& large, std::vector<Candidate>& found) const {
    if (static_cast<double>(large.bits - small.bits) < 2 * min_gap_ || small.price <= large.price) return;
    const double slope = (small.price - large.price) / static_cast<double>(large.bits - small.bits);
    Candidate best = make(cheapest(slope));
    if (best.bits <= small.bits || best.bits >= large.bits) return;
    const double line = small.price - slope * static_cast<double>(best.bits - small.bits);
    if (!(best.price < line)) return;
    found.push_back(best);
    split(small, best, found);
    split(best, large, found);
  }

  // Falling widths that minimise price + slope · bits: dynamic programming over the groups; state: width of the last
  // group.
  quant::Layout cheapest(double slope) const {
    const size_t groups = table_.errors[0][size_].size();
    std::vector<std::array<uint8_t, kWidths>> came_from(groups);
    std::array<double, kWidths> cost{};
    for (size_t g = 0; g < groups; ++g) {
      const uint32_t rows = std::min(group_size_, table_.in - static_cast<uint32_t>(g) * group_size_);
      double least = std::numeric_limits<double>::infinity();
      uint8_t from = 0;
      std::array<double, kWidths> next{};
      for (size_t w = 0; w < kWidths; ++w) {
        if (cost[w] < least) {
          least = cost[w];
          from = static_cast<uint8_t>(w);
        }
        came_from[g][w] = g == 0 ? static_cast<uint8_t>(w) : from;
        next[w] = (g == 0 ? 0 : least) + table_.errors[w][size_][g] + slope * rows * kBitWidths[w] * out_;
      }
      cost = next;
    }
    size_t w = static_cast<size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin());
    std::array<uint32_t, kWidths> rows_of{};
    for (size_t g = groups; g-- > 0;) {
      rows_of[w] += std::min(group_size_, table_.in - static_cast<uint32_t>(g) * group_size_);
      w = came_from[g][w];
    }
    quant::Layout layout;
    for (size_t i = 0; i < kWidths; ++i) {
      if (rows_of[i] != 0) layout.runs.push_back({kBitWidths[i], rows_of[i], group_size_});
    }
    return layout;
  }

  const quant::PriceTable& table_;
  uint32_t group_size_;
  size_t size_;
  uint32_t out_;
  uint64_t extra_bits_;
  double min_gap_;
};

}  // namespace

std::vector<Candidate> candidates(const quant::PriceTable& table, uint32_t out, uint64_t extra_bits, double min_step) {
  std::vector<Candidate> found;
  for (const uint32_t group_size : quant::kGroupSizes) {
    HullSearch(table, group_size, out, extra_bits, min_step).run(found);
  }
  for (Candidate& c : uniform_candidates(table.in, out, extra_bits)) {
    c.price = table.price(c.layout);
    found.push_back(std::move(c));
  }
  std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    if (a.bits != b.bits) return a.bits < b.bits;
    if (a.price != b.price) return a.price < b.price;
    return a.layout.to_string() < b.layout.to_string();
  });
  found.erase(std::unique(found.begin(), found.end(),
                          [](const Candidate& a, const Candidate& b) { return a.layout == b.layout; }),
              found.end());
  return found;
}

std::vector<Candidate> uniform_candidates(uint32_t in, uint32_t out, uint64_t extra_bits) {
  std::vector<Candidate> list;
  for (const uint32_t group_size : quant::kGroupSizes) {
    for (const int bits : kBitWidths) {
      quant::Layout layout = quant::uniform_layout(in, bits, group_size);
      const uint64_t size = stored_bits(layout, out) + extra_bits;
      list.push_back({std::move(layout), size, 0});
    }
  }
  return list;
}

}  // namespace bw::codec
