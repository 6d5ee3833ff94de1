// Text from a model, original or quantized.
#pragma once

#include "bitwright/options.h"
#include "pipeline/session.h"

namespace bw::pipeline {

GenerateResult generate_text(Run& run, const GenerateOptions& options);

}  // namespace bw::pipeline
