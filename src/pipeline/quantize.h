// The quantizing stage: layer by layer, on inputs that the layers below have already disturbed.
#pragma once

#include "pipeline/output_plan.h"
#include "pipeline/session.h"
#include "pipeline/stream_comparison.h"

namespace bw::pipeline {

// Quantizes every linear of `plan` and writes a piece for every layer, and one for the head, into `layers` (see
// layer_piece); those that an earlier run left there under the same key are kept, as far as its states go on from them.
// Each packed linear is unpacked and compared before it is written; a difference is Error(kInternal). What comes out is
// compared with the original: see compare_streams.
StreamComparison quantize_layers(Run& run, const model::ModelDir& dir, const CalibrationData& calibration,
                                 const OutputPlan& plan, Effort effort, const io::PieceDir& layers,
                                 const StageWork& work);

// "layer-00003.piece.safetensors"; layer == n_layers stands for the head.
std::string layer_piece(size_t layer);

// Removes what quantize_layers has left in `layers`.
void discard_layers(const io::PieceDir& layers, size_t n_layers);

}  // namespace bw::pipeline
