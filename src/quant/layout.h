// How the rows (input features, in activation order) of one linear are divided into groups of a bit width.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bw::quant {

// Bit widths that a group can have, widest first: the order in which they stand in a linear.
inline constexpr int kBitWidths[] = {8, 6, 5, 4, 3, 2};
inline constexpr size_t kWidths = 6;
inline constexpr uint32_t kGroupSizes[] = {32, 64, 128};
inline constexpr uint32_t kRowStep = 32;  // groups hold a multiple of it

// Consecutive rows of one width, cut into groups of `group_size` rows; the last group takes what is left.
struct BitRun {
  int bits = 0;
  uint32_t rows = 0;
  uint32_t group_size = 128;
  bool operator==(const BitRun&) const = default;
};

// One group: `rows` rows from `first` on share a scale code per column.
struct Group {
  int bits = 0;
  uint32_t first = 0, rows = 0;
};

// Runs of falling width.
struct Layout {
  std::vector<BitRun> runs;
  bool operator==(const Layout&) const = default;

  uint32_t rows() const;
  std::vector<Group> groups() const;
  // "6b128g64 4b448g64": 128 rows of 6 bits in groups of 64, then ...
  std::string to_string() const;
  // Throws Error(kModel) beginning with `name` unless the layout is valid for `in` rows: widths known and falling, rows
  // positive multiples of 32 that add up to `in`, group size one of kGroupSizes.
  void validate(uint32_t in, const std::string& name) const;
};

// One width for all rows.
Layout uniform_layout(uint32_t in, int bits, uint32_t group_size);

}  // namespace bw::quant
