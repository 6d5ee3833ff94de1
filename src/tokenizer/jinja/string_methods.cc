#include <algorithm>
#include <string_view>

#include "base/utf8.h"
#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/text.h"

namespace bw::tokenizer::jinja {
namespace {

using Method = Value (*)(const std::string& text, const CallArguments& arguments, Context& context);

Value make(std::string text) { return Value::string(std::move(text)); }

Value list_of(std::vector<std::string> parts, Context& context) {
  context.meter.charge(parts.size() * 2 * kItemCost);
  std::vector<Value> items;
  for (std::string& part : parts) items.push_back(Value::string(std::move(part)));
  return Value::list(std::move(items));
}

template <bool kLeft, bool kRight>
Value strip_method(const std::string& text, const CallArguments& arguments, Context& context) {
  const Bound bound("strip", arguments, {"chars"}, 0);
  const auto characters = bound.text_or_none(0);
  if (characters) context.meter.charge((text.size() / 16 + 1) * characters->size());
  return make(std::string(strip(text, characters, kLeft, kRight)));
}

template <std::string (*kFunction)(std::string_view)>
Value map_method(const std::string& text, const CallArguments& arguments, Context& context) {
  Bound("method", arguments, {}, 0);
  context.meter.charge(text.size() * 3);
  return make(kFunction(text));
}

template <bool (*kFunction)(std::string_view)>
Value test_method(const std::string& text, const CallArguments& arguments, Context&) {
  Bound("method", arguments, {}, 0);
  return Value(kFunction(text));
}

template <std::vector<std::string> (*kFunction)(std::string_view, std::optional<std::string_view>, int64_t)>
Value split_method(const std::string& text, const CallArguments& arguments, Context& context) {
  const Bound bound("split", arguments, {"sep", "maxsplit"}, 0);
  const auto separator = bound.text_or_none(0);
  if (separator && separator->empty()) throw Fault("empty separator");
  context.meter.charge(text.size() * 8 + (separator ? search_cost(text, *separator) : 0));
  return list_of(kFunction(text, separator, bound.integer_or(1, -1)), context);
}

// text[start:stop] of the arguments at 1 and 2, in code points.
std::string_view window(const std::string& text, const Bound& bound, size_t& begin) {
  std::string_view view = text;
  begin = 0;
  if (!bound.find(1)) return view;
  const auto n = static_cast<int64_t>(count_code_points(text));
  const auto position = [&](size_t i, int64_t fallback) {
    const int64_t at = bound.integer_or(i, fallback);
    return at < 0 ? std::max<int64_t>(at + n, 0) : at;
  };
  const int64_t from = position(1, 0), to = position(2, n);
  if (from > n || to < from) return begin = std::string_view::npos, std::string_view();
  begin = byte_offset(text, static_cast<size_t>(from));
  return view.substr(begin, byte_offset(text, static_cast<size_t>(to)) - begin);
}

template <bool kAtEnd>
Value affix_method(const std::string& text, const CallArguments& arguments, Context& context) {
  const Bound bound(kAtEnd ? "endswith" : "startswith", arguments, {"affix", "start", "end"}, 1);
  size_t begin = 0;
  const std::string_view view = window(text, bound, begin);
  if (begin == std::string_view::npos) return Value(false);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string())
      throw Fault("startswith/endswith: arg must be str or a tuple of str, not " + type_name(affix));
    return kAtEnd ? view.ends_with(affix.text()) : view.starts_with(affix.text());
  };
  const List* list = bound.get(0).as_list();
  if (list) context.meter.charge(list->items.size() * (view.size() / 16 + 1));
  if (list && list->is_tuple) return Value(std::any_of(list->items.begin(), list->items.end(), matches));
  return Value(matches(bound.get(0)));
}

template <bool kReverse, bool kThrows>
Value find_method_of(const std::string& text, const CallArguments& arguments, Context& context) {
  const Bound bound("find", arguments, {"sub", "start", "end"}, 1);
  context.meter.charge(search_cost(text, bound.text(0)));
  size_t begin = 0;
  const std::string_view view = window(text, bound, begin);
  const std::string& part = bound.text(0);
  size_t at = std::string_view::npos;
  if (begin != std::string_view::npos) at = kReverse ? view.rfind(part) : view.find(part);
  if (at != std::string_view::npos) {
    return Value(static_cast<int64_t>(count_code_points(std::string_view(text).substr(0, begin + at))));
  }
  if (kThrows) throw Fault("substring not found");
  return Value(int64_t{-1});
}

size_t count_matches(std::string_view text, std::string_view part) {
  if (part.empty()) return count_code_points(text) + 1;
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) ++n;
  return n;
}

Value count_method(const std::string& text, const CallArguments& arguments, Context& context) {
  const Bound bound("count", arguments, {"sub", "start", "end"}, 1);
  context.meter.charge(text.size() + search_cost(text, bound.text(0)));
  size_t begin = 0;
  const std::string_view view = window(text, bound, begin);
  if (begin == std::string_view::npos) return Value(int64_t{0});
  return Value(static_cast<int64_t>(count_matches(view, bound.text(0))));
}

Value replace_method(const std::string& text, const CallArguments& arguments, Context& context) {
  if (!arguments.named.empty()) throw Fault("str.replace() takes no keyword arguments");
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  context.meter.charge(search_cost(text, bound.text(0)));
  context.meter.charge(text.size() * 2 + count_matches(text, bound.text(0)) * (bound.text(1).size() + 4));
  return make(replace(text, bound.text(0), bound.text(1), bound.integer_or(2, -1)));
}

Value join_method(const std::string& text, const CallArguments& arguments, Context& context) {
  const Bound bound("join", arguments, {"iterable"}, 1);
  std::string out;
  bool first = true;
  for (const Value& item : iterate(bound.get(0), context)) {
    if (!item.is_string()) throw Fault("str.join(): expected str instance, " + type_name(item) + " found");
    context.meter.charge(item.text().size() + text.size());
    if (!first) out += text;
    first = false;
    out += item.text();
  }
  return make(std::move(out));
}

Value splitlines_method(const std::string& text, const CallArguments& arguments, Context& context) {
  const Bound bound("splitlines", arguments, {"keepends"}, 0);
  context.meter.charge(text.size() * 4);
  return list_of(split_lines(text, bound.flag(0)), context);
}

template <bool kLast>
Value partition_method(const std::string& text, const CallArguments& arguments, Context& context) {
  const Bound bound("partition", arguments, {"sep"}, 1);
  const std::string& separator = bound.text(0);
  if (separator.empty()) throw Fault("empty separator");
  context.meter.charge(text.size() + search_cost(text, separator));
  const size_t at = kLast ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos) {
    return kLast ? Value::tuple({make(""), make(""), make(text)}) : Value::tuple({make(text), make(""), make("")});
  }
  return Value::tuple({make(text.substr(0, at)), make(separator), make(text.substr(at + separator.size()))});
}

template <bool kPrefix>
Value remove_method(const std::string& text, const CallArguments& arguments, Context&) {
  const Bound bound("removeprefix", arguments, {"affix"}, 1);
  const std::string& affix = bound.text(0);
  if (kPrefix && text.starts_with(affix)) return make(text.substr(affix.size()));
  if (!kPrefix && text.ends_with(affix)) return make(text.substr(0, text.size() - affix.size()));
  return make(text);
}

// Fills up to `width` code points; kLeft and kRight say on which sides.
template <bool kLeft, bool kRight>
Value pad_method(const std::string& text, const CallArguments& arguments, Context& context) {
  const Bound bound("just", arguments, {"width", "fillchar"}, 1);
  const std::string fill = bound.find(1) ? bound.text(1) : " ";
  if (count_code_points(fill) != 1) throw Fault("The fill character must be exactly one character long");
  const int64_t width = bound.integer_or(0, 0), length = static_cast<int64_t>(count_code_points(text));
  if (width <= length) return make(text);
  const int64_t room = width - length;
  context.meter.charge(static_cast<uint64_t>(room) * 4);
  // Python puts the odd one of a centred text on the left if the width is odd, too.
  const int64_t left = kLeft && kRight ? room / 2 + (room & width & 1) : kLeft ? room : 0;
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < room; ++i) out += fill;
  return make(std::move(out));
}

Value zfill_method(const std::string& text, const CallArguments& arguments, Context& context) {
  const Bound bound("zfill", arguments, {"width"}, 1);
  const int64_t width = bound.integer_or(0, 0), length = static_cast<int64_t>(count_code_points(text));
  if (width <= length) return make(text);
  const int64_t room = width - length;
  context.meter.charge(static_cast<uint64_t>(room));
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  return make(text.substr(0, sign) + std::string(static_cast<size_t>(room), '0') + text.substr(sign));
}

Value format_method(const std::string& text, const CallArguments& arguments, Context& context) {
  return make(format_braces(text, arguments, context));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

constexpr std::pair<std::string_view, Method> kMethods[] = {
    {"capitalize", map_method<capitalize>},
    {"center", pad_method<true, true>},
    {"count", count_method},
    {"endswith", affix_method<true>},
    {"find", find_method_of<false, false>},
    {"format", format_method},
    {"index", find_method_of<false, true>},
    {"isalnum", test_method<is_alnum>},
    {"isalpha", test_method<is_alpha>},
    {"isascii", test_method<is_ascii>},
    {"isdecimal", test_method<is_digit>},
    {"isdigit", test_method<is_digit>},
    {"islower", test_method<is_lower>},
    {"isnumeric", test_method<is_digit>},
    {"isspace", test_method<is_all_space>},
    {"isupper", test_method<is_upper>},
    {"join", join_method},
    {"ljust", pad_method<false, true>},
    {"lower", map_method<lower>},
    {"lstrip", strip_method<true, false>},
    {"partition", partition_method<false>},
    {"removeprefix", remove_method<true>},
    {"removesuffix", remove_method<false>},
    {"replace", replace_method},
    {"rfind", find_method_of<true, false>},
    {"rindex", find_method_of<true, true>},
    {"rjust", pad_method<true, false>},
    {"rpartition", partition_method<true>},
    {"rsplit", split_method<rsplit>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<split>},
    {"splitlines", splitlines_method},
    {"startswith", affix_method<false>},
    {"strip", strip_method<true, true>},
    {"title", map_method<title>},
    {"upper", map_method<upper>},
    {"zfill", zfill_method},
};

}  // namespace

Value call_string_method(const std::string& text, const std::string& name, const CallArguments& arguments,
                         Context& context) {
  context.meter.charge(text.size() + 1);
  for (const auto& [known, method] : kMethods) {
    if (known == name) return method(text, arguments, context);
  }
  throw Fault("str." + name + "() is not supported in chat templates");
}

}  // namespace bw::tokenizer::jinja
