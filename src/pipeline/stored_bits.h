// What the linears of a model directory take on disk.
#pragma once

#include "model/model_dir.h"

namespace bw::pipeline {

// Bits stored for the weight of a linear (all its tensors but the bias); the head's are the embedding's where it is
// tied.
uint64_t stored_weight_bits(const model::ModelDir& dir, const model::LinearInfo& info);
// Mean over the decoder's linears.
double bpw_of_linears(const model::ModelDir& dir);
double bpw_of_head(const model::ModelDir& dir);

}  // namespace bw::pipeline
