#include <algorithm>

#include "tokenizer/jinja/runtime.h"

namespace bw::tokenizer::jinja {

Bound::Bound(std::string_view function, const CallArguments& arguments,
             std::initializer_list<std::string_view> parameters, size_t required)
    : function_(function), values_(parameters.size()) {
  if (arguments.positional.size() > parameters.size()) {
    throw Fault(function_ + "() takes at most " + std::to_string(parameters.size()) + " arguments (" +
                std::to_string(arguments.positional.size()) + " given)");
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) throw Fault(function_ + "() got an unexpected keyword argument '" + name + "'");
    std::optional<Value>& slot = values_[static_cast<size_t>(found - parameters.begin())];
    if (slot) throw Fault(function_ + "() got multiple values for argument '" + name + "'");
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) throw Fault(function_ + "() is missing the argument '" + std::string(parameters.begin()[i]) + "'");
  }
}

int64_t Bound::integer_or(size_t i, int64_t fallback) const {
  if (!values_[i] || values_[i]->is_none()) return fallback;
  if (!values_[i]->is_integral()) {
    throw Fault(function_ + "(): '" + type_name(*values_[i]) + "' object cannot be interpreted as an integer");
  }
  return values_[i]->integer();
}

std::optional<std::string_view> Bound::text_or_none(size_t i) const {
  if (!values_[i] || values_[i]->is_none()) return std::nullopt;
  return text(i);
}

const std::string& Bound::text(size_t i) const {
  if (!values_[i]->is_string()) throw Fault(function_ + "() wants a str, not " + type_name(*values_[i]));
  return values_[i]->text();
}

}  // namespace bw::tokenizer::jinja
