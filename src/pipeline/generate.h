// Text from a model, original or quantized, and where the texts of two part.
#pragma once

#include "bitwright/options.h"
#include "pipeline/session.h"

namespace bw::pipeline {

GenerateResult generate_text(Run& run, const GenerateOptions& options);

GenerateAgainstResult generate_text_against(Run& run, const GenerateOptions& options,
                                            const std::filesystem::path& other);

}  // namespace bw::pipeline
