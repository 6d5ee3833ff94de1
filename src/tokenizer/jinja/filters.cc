#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/html_escape.h"
#include "base/utf8.h"
#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/text.h"

namespace bw::tokenizer::jinja {
namespace {

// soft_str: the text that most string filters work on.
std::string text_of(const Value& value, Context& context) { return to_text(value, context.meter); }

template <std::string (*kFunction)(std::string_view)>
Value map_text(const Value& value, const CallArguments& arguments, Context& context) {
  Bound("filter", arguments, {}, 0);
  const std::string text = text_of(value, context);
  context.meter.charge(text.size() * 3);
  return Value::string(kFunction(text));
}

Value filter_trim(const Value& value, const CallArguments& arguments, Context& context) {
  const Bound bound("trim", arguments, {"chars"}, 0);
  const std::string text = text_of(value, context);
  const auto characters = bound.text_or_none(0);
  if (characters) context.meter.charge((text.size() / 16 + 1) * characters->size());
  return Value::string(std::string(strip(text, characters, true, true)));
}

Value filter_length(const Value& value, const CallArguments& arguments, Context& context) {
  Bound("length", arguments, {}, 0);
  if (value.is_string()) context.meter.charge(value.text().size() / 4);
  return Value(length(value));
}

Value filter_default(const Value& value, const CallArguments& arguments, Context&) {
  const Bound bound("default", arguments, {"default_value", "boolean"}, 0);
  const bool missing = value.is_undefined() || (bound.flag(1) && !truth(value));
  return missing ? bound.get_or(0, Value::string("")) : value;
}

Value filter_string(const Value& value, const CallArguments& arguments, Context& context) {
  Bound("string", arguments, {}, 0);
  return Value::string(text_of(value, context));
}

Value filter_safe(const Value& value, const CallArguments& arguments, Context& context) {
  return filter_string(value, arguments, context);
}

Value filter_escape(const Value& value, const CallArguments& arguments, Context& context) {
  Bound("escape", arguments, {}, 0);
  return Value::string(html_escaped(text_of(value, context)));
}

Value filter_int(const Value& value, const CallArguments& arguments, Context& context) {
  const Bound bound("int", arguments, {"default", "base"}, 0);
  if (bound.integer_or(1, 10) != 10) throw Fault("int filter: only base 10 is supported");
  if (value.is_undefined()) throw Fault(*value.as<Undefined>().reason);
  if (value.is_integral()) return Value(value.integer());
  const Value fallback = bound.get_or(0, Value(int64_t{0}));
  if (value.is<double>()) return std::isnan(value.as<double>()) ? fallback : Value(to_integer(value.as<double>()));
  if (!value.is_string()) return fallback;
  context.meter.charge(value.text().size());
  if (const auto integer = parse_integer(value.text())) return Value(*integer);
  const auto real = parse_float(value.text());
  return real && std::isfinite(*real) ? Value(to_integer(*real)) : fallback;
}

Value filter_float(const Value& value, const CallArguments& arguments, Context& context) {
  const Bound bound("float", arguments, {"default"}, 0);
  if (value.is_undefined()) throw Fault(*value.as<Undefined>().reason);
  if (value.is_number()) return Value(value.real());
  if (value.is_string()) context.meter.charge(value.text().size());
  const auto real = value.is_string() ? parse_float(value.text()) : std::nullopt;
  return real ? Value(*real) : bound.get_or(0, Value(0.0));
}

Value filter_replace(const Value& value, const CallArguments& arguments, Context& context) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  CallArguments call;
  call.positional = {Value::string(text_of(bound.get(0), context)), Value::string(text_of(bound.get(1), context)),
                     Value(bound.integer_or(2, -1))};
  return call_string_method(text_of(value, context), "replace", call, context);
}

Value filter_indent(const Value& value, const CallArguments& arguments, Context& context) {
  const Bound bound("indent", arguments, {"width", "first", "blank"}, 0);
  if (!value.is_string()) throw Fault("indent: can only indent a str, not " + type_name(value));
  const bool by_text = bound.find(0) && bound.get(0).is_string();
  const int64_t width = by_text ? 0 : bound.integer_or(0, 4);
  context.meter.charge(static_cast<uint64_t>(std::max<int64_t>(width, 0)));
  const std::string indention =
      by_text ? bound.text(0) : std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  context.meter.charge(value.text().size() * 8);
  const std::vector<std::string> lines = split_lines(value.text() + "\n", false);
  context.meter.charge(lines.size() * (indention.size() + 32));
  std::string out = bound.flag(1) ? indention : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i) out += "\n";
    if (i && (bound.flag(2) || !lines[i].empty())) out += indention;
    out += lines[i];
  }
  return Value::string(std::move(out));
}

Value filter_abs(const Value& value, const CallArguments& arguments, Context&) {
  Bound("abs", arguments, {}, 0);
  if (value.is<double>()) return Value(std::fabs(value.as<double>()));
  if (value.is_integral()) return value.integer() < 0 ? negate(value) : Value(value.integer());
  if (value.is_undefined()) throw Fault(*value.as<Undefined>().reason);
  throw Fault("bad operand type for abs(): '" + type_name(value) + "'");
}

// round(value, precision) of Python: to even, from the exact value.
double round_half_even(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision < 0) {
    if (precision < -308) return std::copysign(0.0, value);
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / unit) * unit;
  }
  char buffer[700];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), value);
  return *parse_float(buffer);
}

int64_t round_integer(int64_t value, int64_t precision) {
  if (precision >= 0) return value;
  if (precision < -18) return 0;
  int64_t unit = 1;
  for (int64_t i = 0; i < -precision; ++i) unit *= 10;
  const int64_t rest = ((value % unit) + unit) % unit;
  const bool odd = (value / unit - (value % unit < 0)) % 2 != 0;
  const bool up = rest > unit - rest || (rest == unit - rest && odd);
  int64_t rounded = 0;
  if (up ? __builtin_add_overflow(value, unit - rest, &rounded) : __builtin_sub_overflow(value, rest, &rounded)) {
    throw Fault("integer arithmetic beyond 64 bits is not supported");
  }
  return rounded;
}

Value filter_round(const Value& value, const CallArguments& arguments, Context&) {
  const Bound bound("round", arguments, {"precision", "method"}, 0);
  const std::string method = bound.find(1) ? bound.text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") throw Fault("method must be common, ceil or floor");
  if (value.is_undefined()) throw Fault(*value.as<Undefined>().reason);
  if (!value.is_number()) throw Fault("type " + type_name(value) + " doesn't define __round__ method");
  const int64_t precision = bound.integer_or(0, 0);
  if (method == "common") {
    if (value.is_integral()) return Value(round_integer(value.integer(), precision));
    return Value(round_half_even(value.as<double>(), precision));
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.real() * unit;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value filter_format(const Value& value, const CallArguments& arguments, Context& context) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    throw Fault("can't handle positional and keyword arguments at the same time");
  }
  if (arguments.named.empty()) {
    return Value::string(format_percent(text_of(value, context), Value::tuple(arguments.positional), context));
  }
  Dict names;
  for (const auto& [name, item] : arguments.named) names.set(Value::string(name), item, context.meter);
  return Value::string(format_percent(text_of(value, context), Value::dict(std::move(names)), context));
}

JsonStyle json_style(const CallArguments& arguments, Context& context) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  style.ensure_ascii = bound.flag(0);
  style.sort_keys = bound.flag(3);
  if (const Value* indent = bound.find(1); indent && !indent->is_none()) {
    const int64_t width = indent->is_string() ? 0 : std::max<int64_t>(bound.integer_or(1, 0), 0);
    context.meter.charge(static_cast<uint64_t>(width));
    style.indent = indent->is_string() ? indent->text() : std::string(static_cast<size_t>(width), ' ');
    style.item_separator = ",";
  }
  if (const Value* separators = bound.find(2); separators && !separators->is_none()) {
    const std::vector<Value> pair = iterate(*separators, context);
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      throw Fault("tojson: separators must be two strings");
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  return style;
}

Value filter_tojson(const Value& value, const CallArguments& arguments, Context& context) {
  return Value::string(to_json(value, json_style(arguments, context), context.meter));
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"abs", filter_abs},         {"capitalize", map_text<capitalize>},
    {"count", filter_length},    {"d", filter_default},
    {"default", filter_default}, {"e", filter_escape},
    {"escape", filter_escape},   {"float", filter_float},
    {"format", filter_format},   {"indent", filter_indent},
    {"int", filter_int},         {"length", filter_length},
    {"lower", map_text<lower>},  {"replace", filter_replace},
    {"round", filter_round},     {"safe", filter_safe},
    {"string", filter_string},   {"title", map_text<title_words>},
    {"tojson", filter_tojson},   {"trim", filter_trim},
    {"upper", map_text<upper>},
};

Filter find_filter(std::string_view name) {
  for (const auto& [known, filter] : kFilters) {
    if (known == name) return filter;
  }
  return find_sequence_filter(name);
}

}  // namespace

bool has_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value apply_filter(const std::string& name, const Value& value, const CallArguments& arguments, Context& context) {
  const Filter filter = find_filter(name);
  if (!filter) throw Fault("No filter named '" + name + "'.");
  return filter(value, arguments, context);
}

}  // namespace bw::tokenizer::jinja
