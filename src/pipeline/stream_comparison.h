// How far the quantized model has come from the original, seen behind the last layer.
#pragma once

#include "calib/rows.h"
#include "eval/statistics.h"
#include "pipeline/gradients.h"
#include "pipeline/layer_trace.h"
#include "pipeline/session.h"
#include "pipeline/streams.h"

namespace bw::pipeline {

// Of a model of which only the first layers, or all and then the head, are quantized.
struct TracedKld {
  size_t quantized_layers = 0;
  bool head = false;  // quantized, too
  Estimate kld;       // nats per token
};

struct StreamComparison {
  EvaluateResult measured;
  bool held_out = false;         // on rows that are no calibration; else on tokens that have been fitted to
  std::vector<TracedKld> trace;  // of the first row held out, by what is quantized, the whole model last
};

// The rows, and what each of their tokens feels of every linear; empty where the effort does not weigh tokens (see
// rounding_effort). And rows to measure on, perhaps none.
struct CalibrationData {
  calib::Rows rows, held_out;
  TokenGains gains;
};

// Compares the logits of the quantized model and of the original: of the trace, or, where nothing is held out, of the
// streams, which are behind the last layer, on about 2048 of the calibration tokens; text that has not been fitted to
// comes out worse than these. quantized_head: (vocab, hidden) as it will be loaded. Throws Error(kNumeric) if logits
// are not finite.
StreamComparison compare_streams(Run& run, const model::ModelDir& dir, const nn::Decoder& decoder,
                                 const CalibrationData& calibration, backend::Tensor quantized_head,
                                 const LayerTrace& trace, Streams& streams);

}  // namespace bw::pipeline
