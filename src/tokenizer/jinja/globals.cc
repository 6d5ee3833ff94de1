#include <algorithm>

#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/text.h"

namespace bw::tokenizer::jinja {
namespace {

// As Jinja's sandbox has it.
constexpr int64_t kMaxRange = 100'000;
// Keeps the arithmetic of ranges and their slices far from overflow.
constexpr int64_t kMaxRangeBound = int64_t{1} << 40;

Value make_range(const CallArguments& arguments, Context&) {
  const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  if (!arguments.named.empty()) throw Fault("range() takes no keyword arguments");
  int64_t parts[3] = {0, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    if (!bound.find(i)) continue;
    if (!bound.get(i).is_integral()) {
      throw Fault("'" + type_name(bound.get(i)) + "' object cannot be interpreted as an integer");
    }
    parts[i] = bound.get(i).integer();
    if (parts[i] > kMaxRangeBound || parts[i] < -kMaxRangeBound) throw Fault("range() argument is too large");
  }
  const Range range = bound.find(1) ? Range{parts[0], parts[1], parts[2]} : Range{0, parts[0], 1};
  if (range.step == 0) throw Fault("range() arg 3 must not be zero");
  if (range.size() > kMaxRange) throw Fault("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  return Value(range);
}

// dict(mapping or pairs, **named).
Dict make_dict(const CallArguments& arguments, Context& context) {
  if (arguments.positional.size() > 1) throw Fault("dict expected at most 1 argument");
  Dict dict;
  const auto set = [&](const Value& key, const Value& value) {
    context.meter.charge(dict.entries.size() + 2 * kItemCost);
    dict.set(key, value, context.meter);
  };
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (const Dict* other = source.as_dict()) {
      context.meter.charge(other->entries.size() * 2 * kItemCost);
      dict.entries = other->entries;
    } else {
      for (const Value& item : iterate(source, context)) {
        const std::vector<Value> pair = iterate(item, context);
        if (pair.size() != 2) throw Fault("dictionary update sequence element does not have length 2");
        set(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) set(Value::string(name), value);
  return dict;
}

Value make_namespace(const CallArguments& arguments, Context& context) {
  Dict attributes = make_dict(arguments, context);
  for (const auto& [key, value] : attributes.entries) {
    if (key.is_string() && key.text().starts_with('_')) {
      throw Fault("Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" + key.text() +
                  "'.");
    }
  }
  context.meter.charge(64);
  context.namespaces.push_back({std::move(attributes)});
  return Value(&context.namespaces.back());
}

Value raise_exception(const CallArguments& arguments, Context& context) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  throw Fault(to_text(bound.get(0), context.meter));
}

Value strftime_now(const CallArguments& arguments, Context& context) {
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  const std::string& format = bound.text(0);
  if (format.find('\0') != std::string::npos) throw Fault("embedded null character");
  if (format.size() > 1000) throw Fault("strftime_now(): the format is too long");
  // A one-character tail tells an empty result from a buffer that is too small. No conversion gives more than 100
  // bytes, but a width in the format can.
  std::string out(format.size() * 100 + 16, '\0');
  context.meter.charge(out.size());
  out.resize(std::strftime(out.data(), out.size(), (format + ".").c_str(), &context.clock));
  if (out.empty()) throw Fault("strftime_now(): cannot format '" + format + "'");
  out.pop_back();
  return Value::string(std::move(out));
}

using Function = Value (*)(const CallArguments& arguments, Context& context);

constexpr std::pair<std::string_view, Function> kGlobals[] = {
    {"dict", [](const CallArguments& a, Context& c) { return Value::dict(make_dict(a, c)); }},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"range", make_range},
    {"strftime_now", strftime_now},
};

}  // namespace

bool has_global(std::string_view name) {
  return std::any_of(std::begin(kGlobals), std::end(kGlobals), [&](const auto& g) { return g.first == name; });
}

Value call_global(const std::string& name, const CallArguments& arguments, Context& context) {
  for (const auto& [known, function] : kGlobals) {
    if (known == name) return function(arguments, context);
  }
  throw Fault("'" + name + "' is undefined");
}

}  // namespace bw::tokenizer::jinja
