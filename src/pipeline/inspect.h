// What a model directory, a file of tensors, a measurement or a work folder holds, for people and programs. Nothing is
// changed, and weights are not read.
#pragma once

#include "bitwright/inspect.h"
#include "model/model_dir.h"

namespace bw::pipeline {

// The layer in a name of a tensor or of a part of a model, whatever stands before it: 12 of "model.layers.12.mlp".
std::optional<size_t> layer_of_key(std::string_view key);

InspectResult inspect_model(const std::filesystem::path& path);
// The parts of the file are named as exporters name them: KEY.weight, KEY.bias, KEY.q_weight ...
FileReport inspect_file(const std::filesystem::path& path);
// Throws Error(kModel) if the file is no measurement, of Bitwright's or exllamav2's.
MeasurementReport inspect_measurement(const std::filesystem::path& path);
// It may be at work: what goes meanwhile is not told.
JobReport inspect_job(const std::filesystem::path& path);

// The one of these that fits what is there. Throws Error(kModel) if none does, Error(kIo) if nothing is there.
InspectReport inspect_any(const std::filesystem::path& path);

}  // namespace bw::pipeline
