// How a call's arguments become the variables of a macro.
#pragma once

#include <functional>
#include <string_view>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/value.h"

namespace bw::tokenizer::jinja {

// Gives `define` every parameter of `macro` in order, and varargs, kwargs and caller where its body names them.
// `evaluate` computes the default of a parameter; it may use those defined before. Throws Fault for arguments that the
// macro does not take.
void bind_macro_arguments(const MacroNode& macro, CallArguments arguments,
                          const std::function<void(std::string_view name, Value value)>& define,
                          const std::function<Value(const Expr& fallback)>& evaluate, Meter& meter);

}  // namespace bw::tokenizer::jinja
