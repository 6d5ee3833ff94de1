#include <algorithm>
#include <array>

#include "tokenizer/jinja/runtime.h"

namespace bw::tokenizer::jinja {
namespace {

// Every public method of Python's types, so that an attribute of that name is never looked up among the items of a
// dict. Calling one that is not supported is an error of its own.
constexpr std::string_view kStringMethods[] = {
    "capitalize",   "casefold",   "center",    "count",       "encode",    "endswith",     "expandtabs",   "find",
    "format",       "format_map", "index",     "isalnum",     "isalpha",   "isascii",      "isdecimal",    "isdigit",
    "isidentifier", "islower",    "isnumeric", "isprintable", "isspace",   "istitle",      "isupper",      "join",
    "ljust",        "lower",      "lstrip",    "maketrans",   "partition", "removeprefix", "removesuffix", "replace",
    "rfind",        "rindex",     "rjust",     "rpartition",  "rsplit",    "rstrip",       "split",        "splitlines",
    "startswith",   "strip",      "swapcase",  "title",       "translate", "upper",        "zfill"};
constexpr std::string_view kDictMethods[] = {"copy", "fromkeys", "get", "items", "keys", "values"};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListMethods[] = {"copy", "count", "index"};
constexpr std::string_view kListMutators[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kTupleMethods[] = {"count", "index"};
constexpr std::string_view kLoopMethods[] = {"cycle", "changed"};

template <size_t N>
bool has(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Value make_view(const char* type, std::vector<Value> items, int nesting) {
  return Value(std::make_shared<const View>(View{type, std::move(items), nesting}));
}

Value call_dict_method(const Value& self, const std::string& name, const CallArguments& arguments, Context& context) {
  const Dict& dict = *self.as_dict();
  context.meter.charge(dict.entries.size() / 4);
  if (name == "get") {
    const Bound bound(name, arguments, {"key", "default"}, 1);
    if (!arguments.named.empty()) throw Fault("dict.get() takes no keyword arguments");
    if (!is_hashable(bound.get(0))) throw Fault("unhashable type: '" + type_name(bound.get(0)) + "'");
    const Value* value = dict.find(bound.get(0), context.meter);
    return value ? *value : bound.get_or(1, Value::none());
  }
  if (name == "fromkeys") throw Fault("dict.fromkeys() is not supported in chat templates");
  Bound(name, arguments, {}, 0);
  if (name == "copy") return self;
  context.meter.charge(dict.entries.size() * 3 * kItemCost);
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries) {
    items.push_back(name == "keys" ? key : name == "values" ? value : Value::tuple({key, value}));
  }
  return make_view(name == "keys"     ? "dict_keys"
                   : name == "values" ? "dict_values"
                                      : "dict_items",
                   std::move(items), dict.nesting + 1);
}

Value call_list_method(const Value& self, const std::string& name, const CallArguments& arguments, Context& context) {
  if (name == "copy") {
    Bound(name, arguments, {}, 0);
    return self;
  }
  const Bound bound(name, arguments, {"value", "start", "stop"}, 1);
  const std::vector<Value>& items = self.as_list()->items;
  const auto n = static_cast<int64_t>(items.size());
  const auto position = [&](size_t i, int64_t fallback) {
    const int64_t at = bound.integer_or(i, fallback);
    return std::clamp<int64_t>(at < 0 ? at + n : at, 0, n);
  };
  int64_t count = 0;
  for (int64_t i = name == "index" ? position(1, 0) : 0, stop = name == "index" ? position(2, n) : n; i < stop; ++i) {
    if (!equals(items[static_cast<size_t>(i)], bound.get(0), context.meter)) continue;
    if (name == "index") return Value(i);
    ++count;
  }
  if (name == "index") throw Fault(to_repr(bound.get(0), context.meter) + " is not in list");
  return Value(count);
}

Value call_loop_method(Loop& loop, const std::string& name, const CallArguments& arguments, Context& context) {
  if (!arguments.named.empty()) throw Fault("loop." + name + "() takes no keyword arguments");
  const std::vector<Value>& values = arguments.positional;
  if (name == "cycle") {
    if (values.empty()) throw Fault("no items for cycling given");
    return values[loop.index0 % values.size()];
  }
  bool same = loop.has_changed && loop.changed.size() == values.size();
  for (size_t i = 0; same && i < values.size(); ++i) same = equals(values[i], loop.changed[i], context.meter);
  // A loop among the values would hold itself; it is always the same one.
  const bool holds_loop = std::any_of(values.begin(), values.end(), [](const Value& v) { return v.nesting() > 0; });
  if (holds_loop) throw Fault("loop.changed() of containers is not supported");
  loop.changed = values;
  loop.has_changed = true;
  return Value(!same);
}

}  // namespace

MethodKind find_method(const Value& object, std::string_view name) {
  const auto kind = [](bool callable, bool mutating) {
    return callable ? MethodKind::kCallable : mutating ? MethodKind::kMutating : MethodKind::kNone;
  };
  if (object.is_string()) return kind(has(kStringMethods, name), false);
  if (object.as_dict()) return kind(has(kDictMethods, name), has(kDictMutators, name));
  if (const List* list = object.as_list()) {
    return list->is_tuple ? kind(has(kTupleMethods, name), false)
                          : kind(has(kListMethods, name), has(kListMutators, name));
  }
  if (object.is<std::shared_ptr<Loop>>()) return kind(has(kLoopMethods, name), false);
  return MethodKind::kNone;
}

Value call_method(const Value& object, const std::string& name, const CallArguments& arguments, Context& context) {
  if (object.is_string()) return call_string_method(object.text(), name, arguments, context);
  if (object.as_dict()) return call_dict_method(object, name, arguments, context);
  if (object.as_list()) return call_list_method(object, name, arguments, context);
  return call_loop_method(*object.as<std::shared_ptr<Loop>>(), name, arguments, context);
}

}  // namespace bw::tokenizer::jinja
