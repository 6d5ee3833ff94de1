#include "tokenizer/jinja/macro_arguments.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bw::tokenizer::jinja {
namespace {

std::optional<Value> take_named(CallArguments& arguments, std::string_view name) {
  const auto found =
      std::find_if(arguments.named.begin(), arguments.named.end(), [&](const auto& n) { return n.first == name; });
  if (found == arguments.named.end()) return std::nullopt;
  Value value = std::move(found->second);
  arguments.named.erase(found);
  return value;
}

Value make_kwargs(const CallArguments& arguments, Meter& meter) {
  Dict rest;
  for (const auto& [name, value] : arguments.named) rest.set(Value::string(name), value, meter);
  return Value::dict(std::move(rest));
}

}  // namespace

void bind_macro_arguments(const MacroNode& macro, CallArguments arguments,
                          const std::function<void(std::string_view name, Value value)>& define,
                          const std::function<Value(const Expr& fallback)>& evaluate, Meter& meter) {
  const size_t n = std::min(arguments.positional.size(), macro.parameters.size());
  std::vector<std::optional<Value>> given(macro.parameters.size());
  bool names_caller = false;
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const std::string& name = macro.parameters[i].name;
    names_caller |= name == "caller";
    given[i] = i < n ? std::optional(arguments.positional[i]) : take_named(arguments, name);
  }
  if (macro.uses_caller && !names_caller) {
    const auto caller = take_named(arguments, "caller");
    define("caller", caller ? *caller : Value::undefined("No caller defined"));
  }
  if (macro.uses_kwargs) {
    define("kwargs", make_kwargs(arguments, meter));
  } else if (!arguments.named.empty()) {
    throw Fault("macro '" + macro.name + "' takes no keyword argument '" + arguments.named.front().first + "'");
  }
  const auto extra = arguments.positional.begin() + static_cast<std::ptrdiff_t>(n);
  if (macro.uses_varargs) {
    define("varargs", Value::tuple(std::vector<Value>(extra, arguments.positional.end())));
  } else if (extra != arguments.positional.end()) {
    throw Fault("macro '" + macro.name + "' takes not more than " + std::to_string(n) + " argument(s)");
  }
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const MacroNode::Parameter& parameter = macro.parameters[i];
    if (given[i]) {
      define(parameter.name, *std::move(given[i]));
    } else if (parameter.fallback) {
      define(parameter.name, evaluate(*parameter.fallback));
    } else {
      define(parameter.name, Value::undefined("parameter '" + parameter.name + "' was not provided"));
    }
  }
}

}  // namespace bw::tokenizer::jinja
