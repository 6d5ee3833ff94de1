// JSON data as values of a template.
#pragma once

#include "io/json.h"
#include "tokenizer/jinja/value.h"

namespace bw::tokenizer::jinja {

// Throws Fault for integers beyond 64 bits with sign and for data nested deeper than kMaxNesting.
Value from_json(const io::OrderedJson& json);

}  // namespace bw::tokenizer::jinja
