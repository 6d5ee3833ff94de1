#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/jinja/value.h"

namespace bw::tokenizer::jinja {
namespace {

void append_escape(std::string& out, char32_t c) {
  static constexpr char kHex[] = "0123456789abcdef";
  const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out.push_back(kHex[c >> shift & 15]);
}

void append_string_repr(std::string& out, std::string_view text) {
  const bool double_quotes = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  out.push_back(quote);
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.code_point == '\n') {
      out += "\\n";
    } else if (c.code_point == '\r') {
      out += "\\r";
    } else if (c.code_point == '\t') {
      out += "\\t";
    } else if (c.code_point == '\\' || c.code_point == static_cast<char32_t>(quote)) {
      out.push_back('\\');
      out.push_back(static_cast<char>(c.code_point));
    } else if (is_printable(c.code_point)) {
      out += text.substr(at, c.size);
    } else {
      append_escape(out, c.code_point);
    }
    at += c.size;
  }
  out.push_back(quote);
}

class Writer {
 public:
  Writer(std::string& out, Meter& meter) : out_(out), meter_(meter) {}

  void write(const Value& value) {
    meter_.charge(4);  // for brackets and commas, which may be all there is
    const size_t before = out_.size();
    if (++depth_ > 2 * kMaxNesting) throw Fault("value is nested too deeply to be printed");
    value.visit(*this);
    --depth_;
    if (!value.as_list() && !value.as_dict()) meter_.charge(out_.size() - before + 1);
  }

  void operator()(const Undefined&) { out_ += "Undefined"; }
  void operator()(std::nullptr_t) { out_ += "None"; }
  void operator()(bool b) { out_ += b ? "True" : "False"; }
  void operator()(int64_t i) { out_ += std::to_string(i); }
  void operator()(double d) { out_ += float_repr(d); }
  void operator()(const Value::String& s) { append_string_repr(out_, *s); }
  void operator()(const std::shared_ptr<const List>& list) {
    out_ += list->is_tuple ? "(" : "[";
    write_items(list->items);
    if (list->is_tuple && list->items.size() == 1) out_ += ",";
    out_ += list->is_tuple ? ")" : "]";
  }
  void operator()(const std::shared_ptr<const Dict>& dict) { write_dict(*dict); }
  void operator()(const std::shared_ptr<Iterator>& it) { out_ += "<" + it->type + " object>"; }
  void operator()(const std::shared_ptr<const View>& view) {
    out_ += view->type + "([";
    write_items(view->items);
    out_ += "])";
  }
  void operator()(const Range& r) {
    out_ += "range(" + std::to_string(r.start) + ", " + std::to_string(r.stop);
    if (r.step != 1) out_ += ", " + std::to_string(r.step);
    out_ += ")";
  }
  void operator()(Namespace* ns) {
    out_ += "<Namespace ";
    write_dict(ns->attributes);
    out_ += ">";
  }
  void operator()(const Macro* macro) {
    out_ += "<Macro ";
    append_string_repr(out_, macro->node->name);
    out_ += ">";
  }
  void operator()(const std::shared_ptr<const Function>& f) { out_ += "<function " + f->name + ">"; }
  void operator()(const std::shared_ptr<Loop>& loop) {
    out_ += "<LoopContext " + std::to_string(loop->index0 + 1) + "/" + std::to_string(loop->items.size()) + ">";
  }

 private:
  void write_items(const std::vector<Value>& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) out_ += ", ";
      write(items[i]);
    }
  }
  void write_dict(const Dict& dict) {
    out_ += "{";
    bool first = true;
    for (const auto& [key, item] : dict.entries) {
      if (!first) out_ += ", ";
      first = false;
      write(key);
      out_ += ": ";
      write(item);
    }
    out_ += "}";
  }

  std::string& out_;
  Meter& meter_;
  int depth_ = 0;
};

}  // namespace

// The shortest digits that read back as the same number; an exponent below 1e-4 and from 1e16 on.
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string scientific(buffer, end);
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto fixed_end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string fixed(buffer, fixed_end);
  if (fixed.find('.') == std::string::npos) fixed += ".0";
  return fixed;
}

std::string to_repr(const Value& value, Meter& meter) {
  std::string out;
  Writer(out, meter).write(value);
  return out;
}

std::string to_text(const Value& value, Meter& meter) {
  if (value.is_undefined()) return {};
  if (!value.is_string()) return to_repr(value, meter);
  meter.charge(value.text().size());
  return value.text();
}

}  // namespace bw::tokenizer::jinja
