// Post-processors, as far as one text goes: the ids that they put in front of it and behind it.
#pragma once

#include <cstdint>
#include <vector>

#include "io/json.h"

namespace bw::tokenizer {

struct PostProcessor {
  std::vector<uint32_t> prefix;
  std::vector<uint32_t> suffix;
};

// Null gives none.
PostProcessor parse_post_processor(const io::Json& json);

}  // namespace bw::tokenizer
