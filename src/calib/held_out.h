// Rows that are held out of calibration, so that what comes out can be measured on text it has not been fitted to.
#pragma once

#include <span>

#include "calib/rows.h"

namespace bw::calib {

struct HeldOutShape {
  size_t count = 0, length = 0;
};

// For `count` rows of calibration of `length` tokens: about 2048 tokens in rows of at most 512, but no more than an
// eighth of the rows, at least one.
HeldOutShape held_out_shape(size_t count, size_t length);

// Appends to `rows` up to `wanted` rows of rows.length tokens, begun with `prefix`, from what rows_from_stream leaves
// unused of `stream` between `count` rows of `length` tokens: from the middle of as many gaps, at even distances. None
// where the gaps are too small.
void hold_out(std::span<const uint32_t> stream, std::span<const uint32_t> prefix, size_t count, size_t length,
              size_t wanted, Rows& rows);

// Takes the last shape.count of the rows, which must have at least its length, and cuts them to that.
Rows split_off(Rows& rows, HeldOutShape shape);

}  // namespace bw::calib
