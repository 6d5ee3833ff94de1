#include "tokenizer/jinja/from_json.h"

#include <string>
#include <utility>
#include <vector>

namespace bw::tokenizer::jinja {

Value from_json(const io::OrderedJson& json) {
  using Type = io::OrderedJson::value_t;
  switch (json.type()) {
    case Type::boolean:
      return Value(json.get<bool>());
    case Type::number_integer:
      return Value(json.get<int64_t>());
    case Type::number_unsigned: {
      const uint64_t n = json.get<uint64_t>();
      if (n > static_cast<uint64_t>(INT64_MAX)) throw Fault("integer " + std::to_string(n) + " is too large");
      return Value(static_cast<int64_t>(n));
    }
    case Type::number_float:
      return Value(json.get<double>());
    case Type::string:
      return Value::string(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(item));
      return Value::list(std::move(items));
    }
    case Type::object: {
      Dict dict;
      dict.entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) dict.entries.emplace_back(Value::string(key), from_json(item));
      return Value::dict(std::move(dict));
    }
    default:
      return Value::none();
  }
}

}  // namespace bw::tokenizer::jinja
