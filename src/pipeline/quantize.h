// The quantizing stage: layer by layer, on inputs that the layers below have already disturbed.
#pragma once

#include "pipeline/gradients.h"
#include "pipeline/output_plan.h"
#include "pipeline/session.h"

namespace bw::pipeline {

// Quantizes every linear of `plan` and writes one file per layer, and one for the head, into `layers_dir` (see
// layer_file). `gains` of the same rows weigh the tokens. Each packed linear is unpacked and compared before it is
// written; a difference is Error(kInternal).
void quantize_layers(Run& run, const model::ModelDir& dir, const calib::Rows& rows, const TokenGains& gains,
                     const OutputPlan& plan, Effort effort, const std::filesystem::path& layers_dir);

// "layer-00003.safetensors"; layer == n_layers stands for the head.
std::filesystem::path layer_file(const std::filesystem::path& layers_dir, size_t layer);

}  // namespace bw::pipeline
