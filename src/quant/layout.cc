#include "quant/layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "bitwright/error.h"

namespace bw::quant {

uint32_t Layout::rows() const {
  uint32_t sum = 0;
  for (const BitRun& run : runs) sum += run.rows;
  return sum;
}

std::vector<Group> Layout::groups() const {
  std::vector<Group> out;
  uint32_t row = 0;
  for (const BitRun& run : runs) {
    for (uint32_t done = 0; done < run.rows;) {
      const uint32_t n = std::min(run.group_size, run.rows - done);
      out.push_back({run.bits, row, n});
      done += n;
      row += n;
    }
  }
  return out;
}

std::string Layout::to_string() const {
  std::string s;
  for (const BitRun& run : runs)
    s += fmt::format("{}{}b{}g{}", s.empty() ? "" : " ", run.bits, run.rows, run.group_size);
  return s;
}

void Layout::validate(uint32_t in, const std::string& name) const {
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorCode::kModel, fmt::format("{}: layout '{}' {}", name, to_string(), why));
  };
  int last = 9;
  uint64_t sum = 0;
  for (const BitRun& run : runs) {
    if (std::find(std::begin(kBitWidths), std::end(kBitWidths), run.bits) == std::end(kBitWidths)) {
      fail("has a width that is not 2, 3, 4, 5, 6 or 8 bits");
    }
    if (std::find(std::begin(kGroupSizes), std::end(kGroupSizes), run.group_size) == std::end(kGroupSizes)) {
      fail("has a group size that is not 32, 64 or 128");
    }
    if (run.bits >= last) fail("has widths that do not fall");
    if (run.rows == 0 || run.rows % kRowStep != 0) fail("has a run whose rows are no positive multiple of 32");
    last = run.bits;
    sum += run.rows;
  }
  if (sum != in) fail(fmt::format("has {} rows, the linear {}", sum, in));
}

Layout uniform_layout(uint32_t in, int bits, uint32_t group_size) { return {{{bits, in, group_size}}}; }

}  // namespace bw::quant
