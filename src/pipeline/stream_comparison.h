// How far the quantized model has come from the original, seen where both streams end.
#pragma once

#include "calib/rows.h"
#include "eval/statistics.h"
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
  EvaluateResult fitted;
  std::vector<TracedKld> trace;  // by what is quantized, the whole model last
};

// Compares the logits of both streams, which are behind the last layer, on about 2048 of the calibration tokens; and
// those of the trace's branches, on its tokens. quantized_head: (vocab, hidden) as it will be loaded. All these tokens
// have been fitted to: text that has not comes out somewhat worse. Throws Error(kNumeric) if logits are not finite.
StreamComparison compare_streams(Run& run, const model::ModelDir& dir, const nn::Decoder& decoder,
                                 const calib::Rows& rows, backend::Tensor quantized_head, const LayerTrace& trace,
                                 Streams& streams);

}  // namespace bw::pipeline
