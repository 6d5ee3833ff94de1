// How far the quantized model has come from the original, seen where both streams end.
#pragma once

#include "calib/rows.h"
#include "eval/statistics.h"
#include "pipeline/session.h"
#include "pipeline/streams.h"

namespace bw::pipeline {

// Compares the logits of both streams, which are behind the last layer, on about 2048 of the calibration tokens.
// quantized_head: (vocab, hidden) as it will be loaded. These tokens have been fitted to: text that has not comes out
// somewhat worse. Throws Error(kNumeric) if logits are not finite.
EvaluateResult compare_streams(Run& run, const model::ModelDir& dir, const nn::Decoder& decoder,
                               const calib::Rows& rows, backend::Tensor quantized_head, Streams& streams);

}  // namespace bw::pipeline
