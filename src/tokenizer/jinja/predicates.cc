#include <algorithm>

#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/text.h"

namespace bw::tokenizer::jinja {
namespace {

using Test = bool (*)(const Value& value, const Value& other, Context& context);

// value % 2 == rest, which is neither for 2.5.
bool leaves(const Value& value, int64_t rest, Context& context) {
  return equals(binary(Op::kModulo, value, Value(int64_t{2}), context), Value(rest), context.meter);
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.as_list() || value.as_dict() || value.is<Range>() ||
         value.is<std::shared_ptr<Iterator>>() || value.is<std::shared_ptr<const View>>() ||
         value.is<std::shared_ptr<Loop>>();
}

bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_string() || value.as_list() || value.as_dict() || value.is<Range>();
}

template <Op kOp>
bool compares(const Value& value, const Value& other, Context& context) {
  return compare(kOp, value, other, context);
}

bool is_same(const Value& value, const Value& other, Context& context) {
  if (value.is_none() || value.is<bool>() || value.is<int64_t>()) {
    return type_name(value) == type_name(other) && equals(value, other, context.meter);
  }
  return value.same_object(other);
}

struct Entry {
  std::string_view name;
  bool takes_other;
  Test test;
};

constexpr Entry kTests[] = {
    {"boolean", false, [](const Value& v, const Value&, Context&) { return v.is<bool>(); }},
    {"callable", false,
     [](const Value& v, const Value&, Context&) {
       return v.is<const Macro*>() || v.is<std::shared_ptr<const Function>>() || v.is<std::shared_ptr<Loop>>() ||
              v.is_undefined();
     }},
    {"defined", false, [](const Value& v, const Value&, Context&) { return !v.is_undefined(); }},
    {"divisibleby", true,
     [](const Value& v, const Value& other, Context& context) {
       return equals(binary(Op::kModulo, v, other, context), Value(int64_t{0}), context.meter);
     }},
    {"even", false, [](const Value& v, const Value&, Context& context) { return leaves(v, 0, context); }},
    {"false", false, [](const Value& v, const Value&, Context&) { return v.is<bool>() && !v.as<bool>(); }},
    {"filter", false, [](const Value& v, const Value&, Context&) { return v.is_string() && has_filter(v.text()); }},
    {"float", false, [](const Value& v, const Value&, Context&) { return v.is<double>(); }},
    {"in", true, [](const Value& v, const Value& other, Context& context) { return contains(other, v, context); }},
    {"integer", false, [](const Value& v, const Value&, Context&) { return v.is<int64_t>(); }},
    {"iterable", false, [](const Value& v, const Value&, Context&) { return is_iterable(v); }},
    {"lower", false,
     [](const Value& v, const Value&, Context& context) { return is_lower(to_text(v, context.meter)); }},
    {"mapping", false, [](const Value& v, const Value&, Context&) { return v.as_dict() != nullptr; }},
    {"none", false, [](const Value& v, const Value&, Context&) { return v.is_none(); }},
    {"number", false, [](const Value& v, const Value&, Context&) { return v.is_number(); }},
    {"odd", false, [](const Value& v, const Value&, Context& context) { return leaves(v, 1, context); }},
    {"sameas", true, is_same},
    {"sequence", false, [](const Value& v, const Value&, Context&) { return is_sequence(v); }},
    {"string", false, [](const Value& v, const Value&, Context&) { return v.is_string(); }},
    {"test", false, [](const Value& v, const Value&, Context&) { return v.is_string() && has_test(v.text()); }},
    {"true", false, [](const Value& v, const Value&, Context&) { return v.is<bool>() && v.as<bool>(); }},
    {"undefined", false, [](const Value& v, const Value&, Context&) { return v.is_undefined(); }},
    {"upper", false,
     [](const Value& v, const Value&, Context& context) { return is_upper(to_text(v, context.meter)); }},
    {"==", true, compares<Op::kEqual>},
    {"eq", true, compares<Op::kEqual>},
    {"equalto", true, compares<Op::kEqual>},
    {"!=", true, compares<Op::kNotEqual>},
    {"ne", true, compares<Op::kNotEqual>},
    {">", true, compares<Op::kGreater>},
    {"gt", true, compares<Op::kGreater>},
    {"greaterthan", true, compares<Op::kGreater>},
    {">=", true, compares<Op::kGreaterEqual>},
    {"ge", true, compares<Op::kGreaterEqual>},
    {"<", true, compares<Op::kLess>},
    {"lt", true, compares<Op::kLess>},
    {"lessthan", true, compares<Op::kLess>},
    {"<=", true, compares<Op::kLessEqual>},
    {"le", true, compares<Op::kLessEqual>},
};

const Entry* find_test(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const Entry& e) { return e.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace

bool has_test(std::string_view name) { return find_test(name) != nullptr; }

bool apply_test(const std::string& name, const Value& value, const CallArguments& arguments, Context& context) {
  const Entry* entry = find_test(name);
  if (!entry) throw Fault("No test named '" + name + "'.");
  if (!entry->takes_other) {
    Bound(name, arguments, {}, 0);
    return entry->test(value, Value::none(), context);
  }
  const Bound bound(name, arguments, {"other"}, 1);
  return entry->test(value, bound.get(0), context);
}

}  // namespace bw::tokenizer::jinja
