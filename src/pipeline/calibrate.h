// The calibration rows alone: shown and kept.
#pragma once

#include "pipeline/session.h"

namespace bw::pipeline {

CalibrateResult calibrate_model(Run& run, const CalibrateOptions& options);

}  // namespace bw::pipeline
