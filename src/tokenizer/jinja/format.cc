#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/utf8.h"
#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/text.h"

namespace bw::tokenizer::jinja {
namespace {

constexpr int64_t kMaxWidth = 10000;

// [[fill]align][sign][#][0][width][,][.precision][type], of format() and, but for fill and align, of %.
struct Spec {
  std::string fill = " ";
  char align = 0, sign = '-', type = 0;
  bool alternate = false, zero = false;
  char grouping = 0;
  int64_t width = 0, precision = -1;
};

int64_t scan_number(std::string_view& text) {
  int64_t value = 0;
  while (!text.empty() && text[0] >= '0' && text[0] <= '9') {
    value = value * 10 + (text[0] - '0');
    text.remove_prefix(1);
    if (value > kMaxWidth) throw Fault("width or precision of a format is too large");
  }
  return value;
}

std::string pad(std::string text, const Spec& spec, char default_align) {
  const int64_t room = spec.width - static_cast<int64_t>(count_code_points(text));
  if (room <= 0) return text;
  const char align = spec.align ? spec.align : default_align;
  const int64_t left = align == '>' ? room : align == '^' ? room / 2 : 0;
  std::string out;
  const auto fill = [&](int64_t n) {
    for (int64_t i = 0; i < n; ++i) out += spec.fill;
  };
  if (align == '=') {
    const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ');
    out = text.substr(0, sign);
    fill(room);
    return out + text.substr(sign);
  }
  fill(left);
  out += text;
  fill(room - left);
  return out;
}

std::string group_digits(const std::string& text, char separator) {
  if (!separator) return text;
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (i && (end - i) % 3 == 0) out.push_back(separator);
    out.push_back(text[i]);
  }
  return out + text.substr(end);
}

std::string with_sign(bool negative, char sign, const std::string& digits) {
  std::string out(negative || sign != '-', negative ? '-' : sign);
  return out += digits;
}

std::string format_integer(int64_t value, const Spec& spec) {
  uint64_t rest = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const unsigned base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  const std::string_view alphabet = spec.type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    digits.push_back(alphabet[rest % base]);
    rest /= base;
  } while (rest);
  std::reverse(digits.begin(), digits.end());
  if (spec.alternate && base != 10) digits = std::string("0") + spec.type + digits;
  return with_sign(value < 0, spec.sign, group_digits(digits, spec.grouping));
}

std::string format_float(double value, const Spec& spec) {
  const bool percent = spec.type == '%';
  const double magnitude = std::fabs(percent ? value * 100 : value);
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
  } else if (!spec.type && spec.precision < 0) {
    digits = float_repr(magnitude);
  } else {
    const char type = percent ? 'f' : spec.type ? spec.type : 'g';
    const char pattern[] = {'%', '.', '*', type, 0};
    const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
    digits.resize(static_cast<size_t>(std::snprintf(nullptr, 0, pattern, precision, magnitude)) + 1);
    std::snprintf(digits.data(), digits.size(), pattern, precision, magnitude);
    digits.pop_back();
    // Without a type, a float still looks like one.
    if (!spec.type && digits.find_first_of(".e") == std::string::npos) digits += ".0";
  }
  return with_sign(std::signbit(value) && !std::isnan(value), spec.sign,
                   group_digits(digits, spec.grouping) + (percent ? "%" : ""));
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    const size_t first = decode_utf8(text, 0).size;
    if (text.size() > first && is_align(text[first])) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      text.remove_prefix(first + 1);
    } else if (is_align(text[0])) {
      spec.align = text[0];
      text.remove_prefix(1);
    }
  }
  const auto take = [&](std::string_view any) {
    if (text.empty() || any.find(text[0]) == std::string_view::npos) return char{0};
    const char c = text[0];
    text.remove_prefix(1);
    return c;
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != 0;
  spec.zero = take("0") != 0;
  spec.width = scan_number(text);
  spec.grouping = take(",_");
  if (take(".")) {
    if (text.empty() || text[0] < '0' || text[0] > '9') throw Fault("Format specifier missing precision");
    spec.precision = scan_number(text);
  }
  spec.type = take("sdxXobfFeEgG%");
  if (!text.empty()) throw Fault("Invalid format specifier");
  if (spec.zero && !spec.align) {
    spec.fill.assign(1, '0');
    spec.align = '=';
  }
  return spec;
}

std::string cut(const std::string& text, int64_t precision) {
  return precision < 0 ? text : text.substr(0, byte_offset(text, static_cast<size_t>(precision)));
}

std::string apply_spec(const Value& value, std::string_view text, Context& context) {
  if (text.empty()) return to_text(value, context.meter);
  const Spec spec = parse_spec(text);
  context.meter.charge(static_cast<uint64_t>(spec.width + std::max<int64_t>(spec.precision, 0)));
  const auto unknown = [&] {
    return Fault(std::string("Unknown format code '") + spec.type + "' for object of type '" + type_name(value) + "'");
  };
  if (value.is_string()) {
    if (spec.type && spec.type != 's') throw unknown();
    if (spec.align == '=') throw Fault("'=' alignment not allowed in string format specifier");
    return pad(cut(value.text(), spec.precision), spec, '<');
  }
  if (!value.is_number()) throw Fault("unsupported format string passed to " + type_name(value) + ".__format__");
  const bool as_integer =
      value.is_integral() && (!spec.type || std::string_view("dxXob").find(spec.type) != std::string_view::npos);
  if (spec.type == 's' || (!as_integer && value.is<double>() &&
                           std::string_view("dxXob").find(spec.type) != std::string_view::npos && spec.type)) {
    throw unknown();
  }
  if (as_integer && spec.precision >= 0) throw Fault("Precision not allowed in integer format specifier");
  return pad(as_integer ? format_integer(value.integer(), spec) : format_float(value.real(), spec), spec, '>');
}

// One field of str.format: {name.attribute[item]!conversion:spec}.
class BraceFormatter {
 public:
  BraceFormatter(const CallArguments& arguments, Context& context) : arguments_(arguments), context_(context) {}

  std::string field(std::string_view text) {
    const size_t colon = text.find(':');
    std::string_view spec = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
    std::string_view name = text.substr(0, colon);
    if (spec.find('{') != std::string_view::npos) throw Fault("nested format fields are not supported");
    const size_t bang = name.find('!');
    const std::string_view conversion = bang == std::string_view::npos ? std::string_view() : name.substr(bang + 1);
    Value value = lookup(name.substr(0, bang));
    if (conversion == "r") value = Value::string(to_repr(value, context_.meter));
    if (conversion == "s") value = Value::string(to_text(value, context_.meter));
    if (!conversion.empty() && conversion != "r" && conversion != "s") throw Fault("Unknown conversion specifier");
    return apply_spec(value, spec, context_);
  }

 private:
  Value lookup(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = first(path.substr(0, end));
    path.remove_prefix(end);
    while (!path.empty()) {
      const bool attribute = path[0] == '.';
      const size_t stop = attribute ? std::min(path.find_first_of(".[", 1), path.size()) : path.find(']');
      if (stop == std::string_view::npos) throw Fault("Missing ']' in format string");
      const std::string name(path.substr(1, stop - 1));
      if (attribute) {
        value = get_attribute(value, name, context_);
      } else {
        const auto index = is_digit(name) ? parse_integer(name) : std::nullopt;
        value = get_item(value, index ? Value(*index) : Value::string(name), context_);
      }
      path.remove_prefix(attribute ? stop : stop + 1);
    }
    return value;
  }

  Value first(std::string_view name) {
    if (!name.empty() && !is_digit(name)) {
      context_.meter.charge(arguments_.named.size() / 4);
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      throw Fault("format(): no argument '" + std::string(name) + "'");
    }
    const bool automatic = name.empty();
    if (automatic ? manual_ : next_ > 0) {
      throw Fault("cannot switch between automatic field numbering and manual field specification");
    }
    manual_ = !automatic;
    const auto index =
        automatic ? static_cast<int64_t>(next_++) : parse_integer(name);  // none: digits of other scripts
    if (!index || static_cast<size_t>(*index) >= arguments_.positional.size()) {
      throw Fault("Replacement index " + (index ? std::to_string(*index) : std::string(name)) +
                  " out of range for positional args tuple");
    }
    return arguments_.positional[static_cast<size_t>(*index)];
  }

  const CallArguments& arguments_;
  Context& context_;
  size_t next_ = 0;
  bool manual_ = false;
};

// The values of a % format, taken one after the other or by name.
class PercentFormatter {
 public:
  PercentFormatter(const Value& values, Context& context) : values_(values), context_(context) {}

  // `rest` stands behind the '%' and is moved past the field.
  std::string field(std::string_view& rest) {
    Value value;
    bool has_value = false;
    if (rest.starts_with('(')) {
      const size_t close = rest.find(')');
      if (close == std::string_view::npos) throw Fault("incomplete format key");
      if (!values_.as_dict()) throw Fault("format requires a mapping");
      const Value* found = values_.as_dict()->find(rest.substr(1, close - 1));
      if (!found) throw Fault("format key '" + std::string(rest.substr(1, close - 1)) + "' is missing");
      value = *found;
      has_value = by_name_ = true;
      rest.remove_prefix(close + 1);
    }
    Spec spec;
    for (; !rest.empty() && std::string_view("-+ 0#").find(rest[0]) != std::string_view::npos; rest.remove_prefix(1)) {
      if (rest[0] == '-') spec.align = '<';
      if (rest[0] == '+' || (rest[0] == ' ' && spec.sign != '+')) spec.sign = rest[0];
      if (rest[0] == '0') spec.zero = true;
      if (rest[0] == '#') spec.alternate = true;
    }
    spec.width = scan_number(rest);
    if (rest.starts_with('.')) {
      rest.remove_prefix(1);
      spec.precision = scan_number(rest);
    }
    if (rest.empty()) throw Fault("incomplete format");
    const char type = rest[0];
    rest.remove_prefix(1);
    if (type == '%') return "%";
    if (!has_value) value = next();
    context_.meter.charge(static_cast<uint64_t>(spec.width + std::max<int64_t>(spec.precision, 0)));
    return convert(value, type, spec);
  }

  void finish() const {
    const bool all_used = by_name_ || values_.as_dict() || next_ == count();
    if (!all_used) throw Fault("not all arguments converted during string formatting");
  }

 private:
  bool is_tuple() const { return values_.as_list() && values_.as_list()->is_tuple; }
  // Python lets everything that has items, but is no tuple, go unused.
  size_t count() const {
    if (is_tuple()) return values_.as_list()->items.size();
    return values_.as_list() || values_.is_undefined() ? next_ : 1;
  }

  Value next() {
    if (!is_tuple()) {
      if (next_++ > 0) throw Fault("not enough arguments for format string");
      return values_;
    }
    if (next_ == count()) throw Fault("not enough arguments for format string");
    return values_.as_list()->items[next_++];
  }

  std::string convert(const Value& value, char type, Spec spec) {
    if (type == 's') return pad(cut(to_text(value, context_.meter), spec.precision), spec, '>');
    if (type == 'r') return pad(cut(to_repr(value, context_.meter), spec.precision), spec, '>');
    const bool integral = type == 'd' || type == 'i' || type == 'u' || type == 'x' || type == 'X' || type == 'o';
    const bool floating = std::string_view("fFeEgG").find(type) != std::string_view::npos;
    if (!integral && !floating) throw Fault(std::string("unsupported format character '") + type + "'");
    if (!value.is_number())
      throw Fault(std::string("%") + type + " format: a real number is required, not " + type_name(value));
    if (spec.zero && !spec.align) {
      spec.fill.assign(1, '0');
      spec.align = '=';
    }
    spec.type = integral && type != 'x' && type != 'X' && type != 'o' ? 'd' : type;
    if (!integral) return pad(format_float(value.real(), spec), spec, '>');
    if (value.is<double>() && spec.type != 'd')
      throw Fault(std::string("%") + type + " format: an integer is required, not float");
    return pad(format_integer(value.is<double>() ? to_integer(value.as<double>()) : value.integer(), spec), spec, '>');
  }

  const Value& values_;
  Context& context_;
  size_t next_ = 0;
  bool by_name_ = false;
};

}  // namespace

std::string format_percent(std::string_view format, const Value& values, Context& context) {
  PercentFormatter formatter(values, context);
  std::string out;
  context.meter.charge(format.size() + 1);
  while (!format.empty()) {
    const size_t at = std::min(format.find('%'), format.size());
    out += format.substr(0, at);
    format.remove_prefix(at);
    if (format.empty()) break;
    format.remove_prefix(1);
    out += formatter.field(format);
  }
  formatter.finish();
  return out;
}

std::string format_braces(std::string_view format, const CallArguments& arguments, Context& context) {
  BraceFormatter formatter(arguments, context);
  std::string out;
  context.meter.charge(format.size() + 1);
  while (!format.empty()) {
    const size_t at = std::min(format.find_first_of("{}"), format.size());
    out += format.substr(0, at);
    format.remove_prefix(at);
    if (format.empty()) break;
    if (format.size() > 1 && format[1] == format[0]) {
      out.push_back(format[0]);
      format.remove_prefix(2);
      continue;
    }
    const size_t close = format.find('}');
    if (format[0] == '}') throw Fault("Single '}' encountered in format string");
    if (close == std::string_view::npos) throw Fault("expected '}' before end of string");
    out += formatter.field(format.substr(1, close - 1));
    format.remove_prefix(close + 1);
  }
  return out;
}

}  // namespace bw::tokenizer::jinja
