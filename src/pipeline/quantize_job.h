// A whole quantization: calibration, measurement, and every target from them, in a work folder.
#pragma once

#include <chrono>
#include <vector>

#include "pipeline/session.h"

namespace bw::pipeline {

// Outputs of all targets: OUTPUT for a single one, OUTPUT-<bpw>bpw for each of several.
std::vector<std::filesystem::path> outputs_of(const QuantizeOptions& options);

// One result for each target, in order; `start`: of the run. What an earlier run of the same job has finished is
// taken from the work folder, which is removed at the end, and stays if this run fails or is interrupted after it has
// finished anything.
std::vector<QuantizeResult> run_quantize_job(Run& run, const model::ModelDir& dir, const QuantizeOptions& options,
                                             std::chrono::steady_clock::time_point start);

}  // namespace bw::pipeline
