// Perplexity and KL divergence of a model on a text.
#pragma once

#include "bitwright/options.h"
#include "pipeline/session.h"

namespace bw::pipeline {

// Streams both models layer by layer over the same rows; logits exist for a chunk of tokens only.
EvaluateResult evaluate_model(Run& run, const EvaluateOptions& options);

}  // namespace bw::pipeline
