#include <algorithm>

#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/text.h"

namespace bw::tokenizer::jinja {
namespace {

// Keeps the arithmetic of slices of slices of a range far from overflow.
constexpr int64_t kMaxRangeStep = int64_t{1} << 50;

Value missing_attribute(const Value& object, std::string_view name) {
  return Value::undefined("'" + type_name(object) + " object' has no attribute '" + std::string(name) + "'");
}

Value unsafe_attribute(const Value& object, const std::string& name) {
  return Value::undefined("access to attribute '" + name + "' of '" + type_name(object) + "' object is unsafe.");
}

Value loop_attribute(const Value& object, const std::string& name) {
  const Loop& loop = *object.as<std::shared_ptr<Loop>>();
  const auto n = static_cast<int64_t>(loop.items.size());
  const auto at = static_cast<int64_t>(loop.index0);
  if (name == "index") return Value(at + 1);
  if (name == "index0") return Value(at);
  if (name == "first") return Value(at == 0);
  if (name == "last") return Value(at + 1 == n);
  if (name == "length") return Value(n);
  if (name == "revindex") return Value(n - at);
  if (name == "revindex0") return Value(n - at - 1);
  if (name == "depth") return Value(int64_t{1});
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem") return at == 0 ? Value::undefined("there is no previous item") : loop.items[loop.index0 - 1];
  if (name == "nextitem") return at + 1 == n ? Value::undefined("there is no next item") : loop.items[loop.index0 + 1];
  return missing_attribute(object, name);
}

// What getattr of Python finds; nullopt where it raises AttributeError.
std::optional<Value> own_attribute(const Value& object, const std::string& name) {
  if (object.is<Namespace*>()) {
    const Value* value = object.as<Namespace*>()->attributes.find(name);
    return value ? std::optional(*value) : std::nullopt;
  }
  switch (find_method(object, name)) {
    case MethodKind::kMutating:
      return unsafe_attribute(object, name);
    case MethodKind::kCallable:
      return Value(std::make_shared<const Function>(Function{name, object, true}));
    default:
      break;
  }
  if (object.is<std::shared_ptr<Loop>>()) {
    Value value = loop_attribute(object, name);
    if (!value.is_undefined() || name == "previtem" || name == "nextitem") return value;
  }
  if (object.is<const Macro*>() && name == "name") return Value::string(object.as<const Macro*>()->node->name);
  const bool internal = name.size() > 4 && name.starts_with("__") && name.ends_with("__");
  if (internal && !object.as_dict()) return unsafe_attribute(object, name);
  return std::nullopt;
}

// Index of an item in a sequence of `size`; nullopt if there is none.
std::optional<size_t> item_index(const Value& key, int64_t size) {
  if (!key.is_integral()) return std::nullopt;
  int64_t i = key.integer();
  if (i < 0) i += size;
  return i >= 0 && i < size ? std::optional(static_cast<size_t>(i)) : std::nullopt;
}

// object[key]; nullopt where Python raises TypeError or LookupError.
std::optional<Value> subscript(const Value& object, const Value& key, Context& context) {
  if (const Dict* dict = object.as_dict()) {
    context.meter.charge(dict->entries.size() / 4);
    const Value* value = is_hashable(key) ? dict->find(key, context.meter) : nullptr;
    return value ? std::optional(*value) : std::nullopt;
  }
  if (const List* list = object.as_list()) {
    const auto i = item_index(key, static_cast<int64_t>(list->items.size()));
    return i ? std::optional(list->items[*i]) : std::nullopt;
  }
  if (object.is_string()) {
    context.meter.charge(object.text().size() / 4);
    const auto i = item_index(key, length(object));
    if (!i) return std::nullopt;
    const size_t begin = byte_offset(object.text(), *i);
    const std::string_view rest = std::string_view(object.text()).substr(begin);
    return Value::string(std::string(rest.substr(0, byte_offset(rest, 1))));
  }
  if (object.is<Range>()) {
    const Range& range = object.as<Range>();
    const auto i = item_index(key, range.size());
    return i ? std::optional(Value(range.start + static_cast<int64_t>(*i) * range.step)) : std::nullopt;
  }
  return std::nullopt;
}

Value missing_item(const Value& object, const Value& key, Context& context) {
  if (key.is_string()) {
    context.meter.charge(key.text().size());
    return missing_attribute(object, key.text());
  }
  return Value::undefined("'" + type_name(object) + " object' has no element " + to_repr(key, context.meter));
}

// The indices of a Python slice.
struct SliceRange {
  int64_t start, step;
  size_t count;
};

SliceRange resolve_slice(const Value& start, const Value& stop, const Value& step, int64_t size) {
  const auto part = [](const Value& value, int64_t fallback) {
    if (value.is_none()) return fallback;
    if (!value.is_integral()) throw Fault("slice indices must be integers or None or have an __index__ method");
    return value.integer();
  };
  int64_t by = part(step, 1);
  if (by == 0) throw Fault("slice step cannot be zero");
  by = std::clamp<int64_t>(by, -size - 1, size + 1);
  const int64_t low = by < 0 ? -1 : 0, high = by < 0 ? size - 1 : size;
  const auto bound = [&](const Value& value, int64_t fallback) {
    if (value.is_none()) return fallback;
    int64_t i = part(value, 0);
    if (i < 0) i = i < -size ? low : i + size;
    return std::clamp(i, low, high);
  };
  const int64_t from = bound(start, by < 0 ? high : low), to = bound(stop, by < 0 ? low : high);
  const Range range{from, to, by};
  return {from, by, static_cast<size_t>(range.size())};
}

}  // namespace

Value get_attribute(const Value& object, const std::string& name, Context& context) {
  if (object.is_undefined()) throw Fault(*object.as<Undefined>().reason);
  if (auto value = own_attribute(object, name)) return *std::move(value);
  if (const Dict* dict = object.as_dict()) {
    context.meter.charge(dict->entries.size() / 4);
    if (const Value* value = dict->find(std::string_view(name))) return *value;
  }
  return missing_attribute(object, name);
}

Value get_item(const Value& object, const Value& key, Context& context) {
  if (object.is_undefined()) throw Fault(*object.as<Undefined>().reason);
  if (auto value = subscript(object, key, context)) return *std::move(value);
  if (key.is_string()) {
    if (auto value = own_attribute(object, key.text())) return *std::move(value);
  }
  return missing_item(object, key, context);
}

Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step, Context& context) {
  if (object.is_undefined()) throw Fault(*object.as<Undefined>().reason);
  const bool sliceable = object.is_string() || object.as_list() || object.is<Range>();
  if (!sliceable) throw Fault("'" + type_name(object) + "' object cannot be sliced");
  const SliceRange range = resolve_slice(start, stop, step, length(object));
  if (object.is<Range>()) {
    const Range& whole = object.as<Range>();
    const int64_t from = whole.start + range.start * whole.step;
    int64_t by = 0;  // of a range with one item, it may grow with every slice
    if (__builtin_mul_overflow(whole.step, range.step, &by) || by > kMaxRangeStep || by < -kMaxRangeStep) {
      throw Fault("the step of a range is too large");
    }
    return Value(Range{from, from + static_cast<int64_t>(range.count) * by, by});
  }
  if (object.is_string()) {
    const std::string& text = object.text();
    context.meter.charge(text.size() * (range.step == 1 ? 1 : 4));
    if (range.step == 1) {
      const size_t begin = byte_offset(text, static_cast<size_t>(range.start));
      const std::string_view rest = std::string_view(text).substr(begin);
      return Value::string(std::string(rest.substr(0, byte_offset(rest, range.count))));
    }
    const std::vector<std::string> characters = split_characters(text);
    std::string out;
    for (size_t i = 0; i < range.count; ++i)
      out += characters[static_cast<size_t>(range.start + static_cast<int64_t>(i) * range.step)];
    return Value::string(std::move(out));
  }
  const List& list = *object.as_list();
  context.meter.charge(range.count * kItemCost);
  std::vector<Value> items;
  for (size_t i = 0; i < range.count; ++i)
    items.push_back(list.items[static_cast<size_t>(range.start + static_cast<int64_t>(i) * range.step)]);
  return list.is_tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Value get_path(const Value& object, const Value& path, Context& context) {
  if (!path.is_string()) return get_item(object, path, context);
  context.meter.charge(path.text().size() * 8);
  Value value = object;
  for (const std::string& part : split(path.text(), ".", -1)) {
    const auto index = is_digit(part) ? parse_integer(part) : std::nullopt;
    value = get_item(value, index ? Value(*index) : Value::string(part), context);
  }
  return value;
}

}  // namespace bw::tokenizer::jinja
