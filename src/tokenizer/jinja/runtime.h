// What expressions can do with values: operators, attributes, methods, filters, tests, global functions.
// All throw Fault where Python or Jinja raises.
#pragma once

#include <ctime>
#include <deque>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/value.h"

namespace bw::tokenizer::jinja {

// What the meter is charged for a Value in a list: about the bytes it takes, with a short string it may hold.
inline constexpr uint64_t kItemCost = 64;

// What looking for `part` may cost: a text and a part of one letter are compared at every place, almost to the end.
inline uint64_t search_cost(std::string_view text, std::string_view part) {
  return (text.size() / 8 + 1) * (part.size() / 16 + 1);
}

// State of one rendering.
struct Context {
  explicit Context(uint64_t budget) : meter(budget) {}

  Meter meter;
  std::deque<Namespace> namespaces;
  std::tm clock{};  // what strftime_now formats
};

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments matched to the names of a function's parameters. Throws Fault for one too many, unknown, twice, or missing.
class Bound {
 public:
  Bound(std::string_view function, const CallArguments& arguments, std::initializer_list<std::string_view> parameters,
        size_t required);
  // Null if not given.
  const Value* find(size_t i) const { return values_[i] ? &*values_[i] : nullptr; }
  const Value& get(size_t i) const { return *values_[i]; }
  Value get_or(size_t i, Value fallback) const { return values_[i] ? *values_[i] : std::move(fallback); }
  bool flag(size_t i, bool fallback = false) const { return values_[i] ? truth(*values_[i]) : fallback; }
  // An integer, or `fallback` where it is absent or None.
  int64_t integer_or(size_t i, int64_t fallback) const;
  // A string, or nullopt where it is absent or None.
  std::optional<std::string_view> text_or_none(size_t i) const;
  const std::string& text(size_t i) const;

 private:
  std::string function_;
  std::vector<std::optional<Value>> values_;
};

// operators.cc
Value binary(Op op, const Value& a, const Value& b, Context& context);
bool compare(Op op, const Value& a, const Value& b, Context& context);
bool contains(const Value& container, const Value& item, Context& context);
Value negate(const Value& value);
// len(value).
int64_t length(const Value& value);
// The items that iter(value) gives; an iterator is read to its end.
std::vector<Value> iterate(const Value& value, Context& context);

// access.cc
Value get_attribute(const Value& object, const std::string& name, Context& context);
Value get_item(const Value& object, const Value& key, Context& context);
// object[start:stop:step]; None for an absent part.
Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step, Context& context);
// "a.b.0": the path that filters take as `attribute`.
Value get_path(const Value& object, const Value& path, Context& context);

// methods.cc: whether Python's type has a method of that name, and calling it.
enum class MethodKind { kNone, kCallable, kMutating };
MethodKind find_method(const Value& object, std::string_view name);
Value call_method(const Value& object, const std::string& name, const CallArguments& arguments, Context& context);
Value call_string_method(const std::string& text, const std::string& name, const CallArguments& arguments,
                         Context& context);

// filters.cc, sequence_filters.cc, predicates.cc, globals.cc
Value apply_filter(const std::string& name, const Value& value, const CallArguments& arguments, Context& context);
// Null if `name` is none of the filters over sequences.
using Filter = Value (*)(const Value& value, const CallArguments& arguments, Context& context);
Filter find_sequence_filter(std::string_view name);
bool apply_test(const std::string& name, const Value& value, const CallArguments& arguments, Context& context);
bool has_filter(std::string_view name);
bool has_test(std::string_view name);
bool has_global(std::string_view name);
Value call_global(const std::string& name, const CallArguments& arguments, Context& context);

// json_text.cc: json.dumps, for the tojson filter.
struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent;  // of one level; nullopt: all on one line
  std::string item_separator = ", ", key_separator = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style, Meter& meter);

// format.cc: "..." % values and "...".format(...).
std::string format_percent(std::string_view format, const Value& values, Context& context);
std::string format_braces(std::string_view format, const CallArguments& arguments, Context& context);

// int(text) and float(text) of Python; nullopt where it raises ValueError.
std::optional<int64_t> parse_integer(std::string_view text);
std::optional<double> parse_float(std::string_view text);
// Truncates; Fault for infinities, NaN and what no 64 bits hold.
int64_t to_integer(double value);

}  // namespace bw::tokenizer::jinja
