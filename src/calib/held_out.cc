#include "calib/held_out.h"

#include <algorithm>

namespace bw::calib {
namespace {

constexpr size_t kTokens = 2048, kLongest = 512, kShare = 8;

}  // namespace

HeldOutShape held_out_shape(size_t count, size_t length) {
  const size_t of_row = std::min(length, kLongest);
  const size_t enough = (kTokens + of_row - 1) / std::max<size_t>(1, of_row);  // 0 tokens are refused elsewhere
  return {std::min(enough, std::max<size_t>(1, count / kShare)), of_row};
}

void hold_out(std::span<const uint32_t> stream, std::span<const uint32_t> prefix, size_t count, size_t length,
              size_t wanted, Rows& rows) {
  const size_t body = length - prefix.size(), own_body = rows.length - prefix.size();
  const size_t gaps = std::max<size_t>(1, count - 1);
  wanted = std::min(wanted, gaps);
  for (size_t i = 0; i < wanted; ++i) {
    const size_t gap = spread_row(i, wanted, gaps);
    const size_t begin = row_start(gap, count, stream.size(), body) + body;
    const size_t end = count == 1 ? stream.size() : row_start(gap + 1, count, stream.size(), body);
    if (end < begin + own_body) continue;
    const auto first = stream.begin() + static_cast<ptrdiff_t>(begin + (end - begin - own_body) / 2);
    rows.ids.insert(rows.ids.end(), prefix.begin(), prefix.end());
    rows.ids.insert(rows.ids.end(), first, first + static_cast<ptrdiff_t>(own_body));
  }
}

Rows split_off(Rows& rows, HeldOutShape shape) {
  Rows held_out;
  held_out.length = shape.length;
  held_out.source = rows.source;
  const size_t kept = rows.count() - shape.count;
  for (size_t i = kept; i < rows.count(); ++i) {
    const auto row = rows.row(i).first(shape.length);
    held_out.ids.insert(held_out.ids.end(), row.begin(), row.end());
  }
  rows.ids.resize(kept * rows.length);
  return held_out;
}

}  // namespace bw::calib
