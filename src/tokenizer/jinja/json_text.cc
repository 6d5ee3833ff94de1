#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "tokenizer/jinja/runtime.h"

namespace bw::tokenizer::jinja {
namespace {

void append_unit(std::string& out, uint32_t unit) {
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out.push_back("0123456789abcdef"[unit >> shift & 15]);
}

void append_json_string(std::string& out, std::string_view text, bool ensure_ascii) {
  static constexpr std::string_view kFrom = "\"\\\n\r\t\f\b", kTo = "\"\\nrtfb";
  out.push_back('"');
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const size_t simple = c.size == 1 ? kFrom.find(text[at]) : std::string_view::npos;
    if (simple != std::string_view::npos) {
      out.push_back('\\');
      out.push_back(kTo[simple]);
    } else if (c.code_point < 0x20 || (ensure_ascii && c.code_point >= 0x7F && c.code_point < 0x10000)) {
      append_unit(out, c.code_point);
    } else if (ensure_ascii && c.code_point >= 0x10000) {
      append_unit(out, 0xD800 + ((c.code_point - 0x10000) >> 10));
      append_unit(out, 0xDC00 + ((c.code_point - 0x10000) & 0x3FF));
    } else {
      out += text.substr(at, c.size);
    }
    at += c.size;
  }
  out.push_back('"');
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_repr(value);
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Meter& meter) : style_(style), meter_(meter) {}

  void write(const Value& value) {
    meter_.charge(8);
    if (value.is_string()) {
      meter_.charge(value.text().size());
      append_json_string(out, value.text(), style_.ensure_ascii);
    } else if (value.is_none() || value.is_number()) {
      out += scalar(value);
    } else if (const List* list = value.as_list()) {
      write_list(*list);
    } else if (const Dict* dict = value.as_dict()) {
      write_dict(*dict);
    } else {
      throw Fault("Object of type " + type_name(value) + " is not JSON serializable");
    }
  }

  std::string out;

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is<bool>()) return value.as<bool>() ? "true" : "false";
    return value.is<double>() ? json_float(value.as<double>()) : std::to_string(value.integer());
  }

  void add(const std::string& separator) {
    meter_.charge(separator.size());
    out += separator;
  }

  void new_line() {
    if (!style_.indent) return;
    out.push_back('\n');
    meter_.charge(level_ * style_.indent->size());
    for (size_t i = 0; i < level_; ++i) out += *style_.indent;
  }

  void write_list(const List& list) {
    if (list.items.empty()) return void(out += "[]");
    out.push_back('[');
    ++level_;
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i) add(style_.item_separator);
      new_line();
      write(list.items[i]);
    }
    --level_;
    new_line();
    out.push_back(']');
  }

  void write_dict(const Dict& dict) {
    if (dict.entries.empty()) return void(out += "{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](auto* a, auto* b) { return less(a->first, b->first, meter_); });
    }
    out.push_back('{');
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i) add(style_.item_separator);
      new_line();
      write_key(entries[i]->first);
      add(style_.key_separator);
      write(entries[i]->second);
    }
    --level_;
    new_line();
    out.push_back('}');
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write(key);
    if (!key.is_none() && !key.is_number()) {
      throw Fault("keys must be str, int, float, bool or None, not " + type_name(key));
    }
    out.push_back('"');
    out += scalar(key);
    out.push_back('"');
  }

  const JsonStyle& style_;
  Meter& meter_;
  size_t level_ = 0;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style, Meter& meter) {
  JsonWriter writer(style, meter);
  writer.write(value);
  return std::move(writer.out);
}

}  // namespace bw::tokenizer::jinja
