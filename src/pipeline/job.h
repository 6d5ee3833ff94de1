// The stages of a job one after the other, each taken from the work folder where an earlier run has finished it.
#pragma once

#include "pipeline/measure.h"
#include "pipeline/session.h"

namespace bw::pipeline {

// Where a job that writes `output` keeps its work: as the options say, else OUTPUT.work (for a device or a pipe, in the
// directory for temporary files). Throws Error(kUsage) if that lies inside the model directory or the output.
std::filesystem::path work_path(const WorkOptions& options, const std::filesystem::path& model,
                                const std::filesystem::path& output);

// The calibration rows and what they are made of. Those that the model writes itself are kept: they take long.
calib::Mix rows_of_job(Run& run, const model::ModelDir& dir, const CalibrationOptions& options, JobDir& job);

// The measurement of the rows and their gains; rounding_tokens: see measure_model.
Measured measure_in_job(Run& run, const model::ModelDir& dir, const calib::Rows& rows, size_t rounding_tokens,
                        uint64_t seed, JobDir& job);
// The gains alone.
TokenGains gains_in_job(Run& run, const model::ModelDir& dir, const calib::Rows& rows, uint64_t seed, JobDir& job);

// What results depend on besides the model, the rows and the options of a stage: program, device, arithmetic.
std::string engine_key(const Run& run);
// Of the token ids.
std::string rows_key(const calib::Rows& rows);

}  // namespace bw::pipeline
