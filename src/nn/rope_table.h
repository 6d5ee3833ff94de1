// Angles of rotary position embeddings.
#pragma once

#include <cstddef>
#include <vector>

#include "base/matrix.h"
#include "model/config.h"

namespace bw::nn {

// Whether the angles of a row of `length` tokens differ from those of shorter rows.
bool depends_on_length(const model::RopeConfig& rope, size_t max_position, size_t length);

// cos | sin (count, head_dim) for positions [first, first + count) of a row that has `length` tokens so far. Computed
// in double and rounded to float where the reference (transformers) rounds, since angles of far positions magnify the
// last bit.
Matrix<float> rope_table(const model::RopeConfig& rope, size_t head_dim, size_t max_position, size_t length,
                         size_t first, size_t count);

}  // namespace bw::nn
