#include <algorithm>

#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/text.h"

namespace bw::tokenizer::jinja {
namespace {

// What sorting and comparing go by: the item or a path into it, in lower case unless that matters.
Value sort_key(const Value& item, const Value* attribute, bool case_sensitive, Context& context) {
  Value key = attribute && !attribute->is_none() ? get_path(item, *attribute, context) : item;
  if (case_sensitive || !key.is_string()) return key;
  context.meter.charge(key.text().size() * 2);
  return Value::string(lower(key.text()));
}

// `sort` takes several paths with commas between them, and compares lists of keys.
Value multi_sort_key(const Value& item, const Value* attribute, bool case_sensitive, Context& context) {
  if (!attribute || !attribute->is_string()) return sort_key(item, attribute, case_sensitive, context);
  context.meter.charge(attribute->text().size() * 8);
  std::vector<Value> keys;
  for (const std::string& part : split(attribute->text(), ",", -1)) {
    const Value path = Value::string(part);
    keys.push_back(sort_key(item, &path, case_sensitive, context));
  }
  return Value::list(std::move(keys));
}

using Keyed = std::pair<Value, Value>;  // key, item

std::vector<Value> sort_keyed(std::vector<Keyed> keyed, bool reverse, Context& context) {
  // std::stable_sort may call `before` in any order; a comparison that throws leaves only copies behind.
  const auto before = [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(b.first, a.first, context.meter) : less(a.first, b.first, context.meter);
  };
  std::stable_sort(keyed.begin(), keyed.end(), before);
  std::vector<Value> items;
  for (Keyed& entry : keyed) items.push_back(std::move(entry.second));
  return items;
}

Value filter_sort(const Value& value, const CallArguments& arguments, Context& context) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0);
  std::vector<Keyed> keyed;
  for (Value& item : iterate(value, context)) {
    Value key = multi_sort_key(item, bound.find(2), bound.flag(1), context);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  return Value::list(sort_keyed(std::move(keyed), bound.flag(0), context));
}

Value filter_dictsort(const Value& value, const CallArguments& arguments, Context& context) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0);
  const std::string by = bound.find(1) ? bound.text(1) : "key";
  if (by != "key" && by != "value") throw Fault("You can only sort by either \"key\" or \"value\"");
  if (value.is_undefined()) throw Fault(*value.as<Undefined>().reason);
  if (!value.as_dict()) throw Fault("'" + type_name(value) + "' object has no attribute 'items'");
  std::vector<Keyed> keyed;
  for (const auto& [key, item] : value.as_dict()->entries) {
    keyed.emplace_back(sort_key(by == "key" ? key : item, nullptr, bound.flag(0), context), Value::tuple({key, item}));
  }
  return Value::list(sort_keyed(std::move(keyed), bound.flag(2), context));
}

Value filter_unique(const Value& value, const CallArguments& arguments, Context& context) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"}, 0);
  std::vector<Value> seen, items;
  for (Value& item : iterate(value, context)) {
    Value key = sort_key(item, bound.find(1), bound.flag(0), context);
    if (!is_hashable(key)) throw Fault("unhashable type: '" + type_name(key) + "'");
    const bool known =
        std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equals(key, other, context.meter); });
    if (known) continue;
    seen.push_back(std::move(key));
    items.push_back(std::move(item));
  }
  return Value::iterator(std::move(items));
}

template <bool kMax>
Value filter_extreme(const Value& value, const CallArguments& arguments, Context& context) {
  const Bound bound(kMax ? "max" : "min", arguments, {"case_sensitive", "attribute"}, 0);
  const std::vector<Value> items = iterate(value, context);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key = sort_key(items[0], bound.find(1), bound.flag(0), context);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = sort_key(items[i], bound.find(1), bound.flag(0), context);
    if (!(kMax ? less(best_key, key, context.meter) : less(key, best_key, context.meter))) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

Value filter_sum(const Value& value, const CallArguments& arguments, Context& context) {
  const Bound bound("sum", arguments, {"attribute", "start"}, 0);
  Value total = bound.get_or(1, Value(int64_t{0}));
  if (total.is_string()) throw Fault("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(value, context)) {
    const bool by_path = bound.find(0) && !bound.get(0).is_none();
    total = binary(Op::kAdd, total, by_path ? get_path(item, bound.get(0), context) : item, context);
  }
  return total;
}

Value filter_join(const Value& value, const CallArguments& arguments, Context& context) {
  const Bound bound("join", arguments, {"d", "attribute"}, 0);
  const std::string separator = bound.find(0) ? to_text(bound.get(0), context.meter) : "";
  std::string out;
  bool first = true;
  for (const Value& item : iterate(value, context)) {
    context.meter.charge(separator.size() + 1);
    if (!first) out += separator;
    first = false;
    const bool by_path = bound.find(1) && !bound.get(1).is_none();
    out += to_text(by_path ? get_path(item, bound.get(1), context) : item, context.meter);
  }
  return Value::string(std::move(out));
}

Value filter_first(const Value& value, const CallArguments& arguments, Context& context) {
  Bound("first", arguments, {}, 0);
  if (value.is<std::shared_ptr<Iterator>>()) {
    Iterator& it = *value.as<std::shared_ptr<Iterator>>();
    if (it.next < it.items.size()) return it.items[it.next++];
  } else if (value.is_string() && !value.text().empty()) {
    return get_item(value, Value(int64_t{0}), context);
  } else {
    const std::vector<Value> items = iterate(value, context);
    if (!items.empty()) return items.front();
  }
  return Value::undefined("No first item, sequence was empty.");
}

Value filter_last(const Value& value, const CallArguments& arguments, Context& context) {
  Bound("last", arguments, {}, 0);
  if (value.is<std::shared_ptr<Iterator>>()) throw Fault("'" + type_name(value) + "' object is not reversible");
  const std::vector<Value> items = iterate(value, context);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value filter_list(const Value& value, const CallArguments& arguments, Context& context) {
  Bound("list", arguments, {}, 0);
  return Value::list(iterate(value, context));
}

Value filter_reverse(const Value& value, const CallArguments& arguments, Context& context) {
  Bound("reverse", arguments, {}, 0);
  if (value.is_string()) return get_slice(value, Value::none(), Value::none(), Value(int64_t{-1}), context);
  std::vector<Value> items = iterate(value, context);
  std::reverse(items.begin(), items.end());
  const bool as_list = value.is<std::shared_ptr<Iterator>>() || value.is_undefined();
  return as_list ? Value::list(std::move(items))
                 : Value::iterator(std::move(items), type_name(value) + "_reverseiterator");
}

Value filter_items(const Value& value, const CallArguments& arguments, Context& context) {
  Bound("items", arguments, {}, 0);
  if (value.is_undefined()) return Value::iterator({});
  if (!value.as_dict()) throw Fault("Can only get item pairs from a mapping.");
  std::vector<Value> items;
  for (const auto& [key, item] : value.as_dict()->entries) items.push_back(Value::tuple({key, item}));
  context.meter.charge(items.size() * 3 * kItemCost);
  return Value::iterator(std::move(items));
}

Value filter_attr(const Value& value, const CallArguments& arguments, Context& context) {
  const Bound bound("attr", arguments, {"name"}, 1);
  if (value.as_dict() && find_method(value, bound.text(0)) == MethodKind::kNone) {
    return Value::undefined("'dict object' has no attribute '" + bound.text(0) + "'");
  }
  return get_attribute(value, bound.text(0), context);
}

Value map_attribute(const Value& value, const CallArguments& arguments, Context& context) {
  const Bound bound("map", arguments, {"attribute", "default"}, 1);
  const Value* fallback = bound.find(1);
  if (fallback && fallback->is_none()) fallback = nullptr;
  std::vector<Value> items;
  for (const Value& item : iterate(value, context)) {
    Value found = get_path(item, bound.get(0), context);
    items.push_back(fallback && found.is_undefined() ? *fallback : std::move(found));
  }
  return Value::iterator(std::move(items));
}

Value filter_map(const Value& value, const CallArguments& arguments, Context& context) {
  if (!truth(value)) return Value::iterator({});
  const bool by_attribute =
      arguments.positional.empty() && !arguments.named.empty() &&
      std::any_of(arguments.named.begin(), arguments.named.end(), [](auto& n) { return n.first == "attribute"; });
  if (by_attribute) return map_attribute(value, arguments, context);
  if (arguments.positional.empty()) throw Fault("map requires a filter argument");
  if (!arguments.positional[0].is_string()) throw Fault("map: the name of the filter must be a str");
  CallArguments rest = arguments;
  const std::string name = rest.positional[0].text();
  rest.positional.erase(rest.positional.begin());
  std::vector<Value> items;
  for (const Value& item : iterate(value, context)) {
    context.meter.charge(10);
    items.push_back(apply_filter(name, item, rest, context));
  }
  return Value::iterator(std::move(items));
}

template <bool kKeep, bool kAttribute>
Value filter_select(const Value& value, const CallArguments& arguments, Context& context) {
  if (!truth(value)) return Value::iterator({});
  CallArguments rest = arguments;
  const auto take = [&] {
    Value first = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  if (kAttribute && rest.positional.empty()) throw Fault("Missing parameter for attribute name");
  const Value attribute = kAttribute ? take() : Value::none();
  std::optional<std::string> test;
  if (!rest.positional.empty()) {
    const Value name = take();
    if (!name.is_string()) throw Fault("the name of a test must be a str");
    test = name.text();
  }
  std::vector<Value> items;
  for (Value& item : iterate(value, context)) {
    context.meter.charge(10);
    const Value subject = kAttribute ? get_path(item, attribute, context) : item;
    const bool holds = test ? apply_test(*test, subject, rest, context) : truth(subject);
    if (holds == kKeep) items.push_back(std::move(item));
  }
  return Value::iterator(std::move(items));
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"attr", filter_attr},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_extreme<true>},
    {"min", filter_extreme<false>},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<false, true>},
    {"reverse", filter_reverse},
    {"select", filter_select<true, false>},
    {"selectattr", filter_select<true, true>},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  for (const auto& [known, filter] : kFilters) {
    if (known == name) return filter;
  }
  return nullptr;
}

}  // namespace bw::tokenizer::jinja
