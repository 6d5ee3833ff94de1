// Perplexity and KL divergence of a model on a text.
#pragma once

#include "bitwright/options.h"
#include "pipeline/session.h"

namespace bw::pipeline {

// Streams both models layer by layer over the same rows; logits exist for a chunk of tokens only.
EvaluateResult evaluate_model(Run& run, const EvaluateOptions& options);

// Bits stored for the weight of a linear (all its tensors but the bias); the head's are the embedding's where it is
// tied.
uint64_t stored_weight_bits(const model::ModelDir& dir, const model::LinearInfo& info);
// Mean over the decoder's linears.
double bpw_of_linears(const model::ModelDir& dir);
double bpw_of_head(const model::ModelDir& dir);

}  // namespace bw::pipeline
