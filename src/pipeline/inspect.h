// What a model directory holds, for people and programs.
#pragma once

#include "bitwright/options.h"
#include "model/model_dir.h"

namespace bw::pipeline {

InspectResult inspect_model(const std::filesystem::path& path);

}  // namespace bw::pipeline
