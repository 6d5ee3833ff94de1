// Runs a parsed template.
#pragma once

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/value.h"

namespace bw::tokenizer::jinja {

// A Fault and the place in the template that it belongs to.
struct RuntimeFault : Fault {
  RuntimeFault(const std::string& what, Place where) : Fault(what), place(where) {}
  Place place;
};

// The text that `body` gives with these variables; `clock` is the time that strftime_now() tells. Throws RuntimeFault
// where Jinja raises, when recursion or output grow beyond all use, and when the work exceeds `budget` (see Meter).
std::string run_template(const Block& body, const std::vector<std::pair<std::string, Value>>& variables,
                         const std::tm& clock, uint64_t budget);

}  // namespace bw::tokenizer::jinja
