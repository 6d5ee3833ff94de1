// The measuring stage: one forward pass that prices every layout of every linear.
#pragma once

#include "pipeline/measurement.h"
#include "pipeline/session.h"

namespace bw::pipeline {

// Runs the rows through the unquantized model, layer by layer. The price of a layout is the mean over tokens of the
// squared disturbance of the residual stream relative to its squared norm at that token: every token counts the same,
// whatever its norm (see docs/quality.md; prices in nats take the place of these weights later). `min_step`: bits per
// weight between the layouts of a linear (see codec::candidates); how many there are costs the device nothing.
Measurement measure_model(Run& run, const model::ModelDir& dir, const calib::Rows& rows, double min_step = 0.02);

}  // namespace bw::pipeline
