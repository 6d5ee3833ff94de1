// The measuring stage: one forward and one backward pass that price every layout of every linear, and the head.
#pragma once

#include "pipeline/gradients.h"
#include "pipeline/measurement.h"
#include "pipeline/session.h"

namespace bw::pipeline {

struct Measured {
  Measurement measurement;
  TokenGains gains;  // of the same rows, for the quantizing stage
};

// Prices every layout of every linear and of the head in nats: with g the gradient of a token's loss to the linear's
// output (see gradients.h), storing W as W + Δ costs KL divergence ≈ ½ E[(gᵀ Δ x)²] ≈ ½ Σ_j Δ_j E[g_j² x xᵀ] Δ_jᵀ, with
// the mean of g_j² over the outputs in place of each. rounding_tokens: that linears will be rounded with (no less than
// in `rows`): the more there are, the less each layout costs, see quant::HeldOutTokens. `min_step`: bits per weight
// between the layouts of a linear (see codec::candidates); how many there are costs the device nothing. seed, work: see
// find_gradients.
Measured measure_model(Run& run, const model::ModelDir& dir, const calib::Rows& rows, size_t rounding_tokens,
                       uint64_t seed, const StageWork& work, double min_step = 0.02);

}  // namespace bw::pipeline
