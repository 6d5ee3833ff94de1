// The rotation parameters of config.json, in both key styles.
#pragma once

#include "model/architectures.h"
#include "model/config.h"
#include "model/config_reader.h"

namespace bw::model {

// Sets config.rope and config.rope_sliding; config.max_position must be set. Throws Error(kModel) for an unknown type,
// a missing or impossible number, and for old and new keys that contradict each other.
void read_rope(const ConfigReader& reader, const std::string& name, const Architecture& architecture,
               ModelConfig& config);

}  // namespace bw::model
