#include "tokenizer/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/utf8.h"
#include "tokenizer/jinja/text.h"

namespace bw::tokenizer::jinja {
namespace {

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

// "\r\n" and "\r" become "\n"; one newline at the very end is dropped.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_text();
    token_begin_ = at_;
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) { throw SyntaxFault(what, place_of(at_)); }

  Place place_of(size_t offset) {
    if (offset < placed_) placed_ = line_begin_ = 0, line_ = 1;
    while (placed_ < offset) {
      if (source_[placed_++] == '\n') {
        ++line_;
        line_begin_ = placed_;
      }
    }
    return {line_, static_cast<uint32_t>(offset - line_begin_ + 1)};
  }

  bool starts_with(std::string_view what) const { return std::string_view(source_).substr(at_).starts_with(what); }

  void add(TokenKind kind, std::string text = {}) {
    Token token;
    token.kind = kind;
    token.text = std::move(text);
    token.place = place_of(token_begin_);
    tokens_.push_back(std::move(token));
  }

  void skip_space() {
    while (at_ < source_.size()) {
      const Utf8Char c = decode_utf8(source_, at_);
      if (!is_space(c.code_point)) break;
      at_ += c.size;
    }
  }

  // Text before a tag that opens at `tag`; `sign` is the character after its two (0: none).
  void add_text(size_t begin, size_t tag, char sign, bool is_variable) {
    std::string_view text = std::string_view(source_).substr(begin, tag - begin);
    if (sign == '-') {
      text = strip(text, std::nullopt, false, true);
    } else if (sign != '+' && !is_variable) {
      const size_t line = text.rfind('\n') + 1;
      if ((line > 0 || line_starting_) && is_all_space(text.substr(line))) text = text.substr(0, line);
    }
    token_begin_ = begin;
    if (!text.empty()) add(TokenKind::kText, std::string(text));
  }

  static size_t find_tag(std::string_view text, size_t from) {
    for (size_t i = from; (i = text.find('{', i)) != std::string_view::npos; ++i) {
      if (i + 1 < text.size() && (text[i + 1] == '%' || text[i + 1] == '{' || text[i + 1] == '#')) return i;
    }
    return std::string_view::npos;
  }

  void lex_text() {
    const size_t begin = at_;
    const size_t tag = find_tag(source_, begin);
    if (tag == std::string_view::npos) {
      token_begin_ = begin;
      add(TokenKind::kText, source_.substr(begin));
      at_ = source_.size();
      return;
    }
    const char kind = source_[tag + 1];
    at_ = tag + 2;
    const char sign = starts_with("-") || starts_with("+") ? source_[at_++] : char{0};
    add_text(begin, tag, sign, kind == '{');
    line_starting_ = false;
    token_begin_ = tag;
    if (kind == '#') return skip_comment();
    if (kind == '%' && lex_raw()) return;
    add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin);
    lex_expression(kind == '{');
  }

  // After the closing characters of a block or comment at `at_`: trim_blocks takes one newline.
  void take_newline() {
    if (starts_with("\n")) ++at_;
    set_line_starting();
  }

  void set_line_starting() { line_starting_ = at_ > 0 && source_[at_ - 1] == '\n'; }

  // If "-%}", "+%}" or "%}" (or the same with `closing`) stands here, goes past it and what it trims.
  bool take_closing(std::string_view closing) {
    if (starts_with("-") && std::string_view(source_).substr(at_ + 1).starts_with(closing)) {
      at_ += 1 + closing.size();
      skip_space();
      set_line_starting();
      return true;
    }
    if (starts_with("+") && std::string_view(source_).substr(at_ + 1).starts_with(closing) && closing != "}}") {
      at_ += 1 + closing.size();
      set_line_starting();
      return true;
    }
    if (!starts_with(closing)) return false;
    at_ += closing.size();
    if (closing == "}}") {
      set_line_starting();
    } else {
      take_newline();
    }
    return true;
  }

  void skip_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("Missing end of comment tag");
    const bool has_sign = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    at_ = has_sign ? end - 1 : end;
    take_closing("#}");
  }

  // {% raw %} ... {% endraw %}; false (and nothing taken) if it is another tag.
  bool lex_raw() {
    const size_t start = at_;
    skip_space();
    if (!starts_with("raw")) return at_ = start, false;
    at_ += 3;
    skip_space();
    const bool trims = starts_with("-%}");
    if (!trims && !starts_with("%}")) return at_ = start, false;
    at_ += trims ? 3 : 2;
    if (trims) skip_space();
    const size_t begin = at_;
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
    for (size_t tag = begin; (tag = source_.find("{%", tag)) != std::string::npos; ++tag) {
      at_ = tag + 2;
      const char sign = starts_with("-") || starts_with("+") ? source_[at_++] : char{0};
      skip_space();
      if (!starts_with("endraw")) continue;
      at_ += 6;
      skip_space();
      if (!starts_with("%}") && !starts_with("-%}") && !starts_with("+%}")) continue;
      add_text(begin, tag, sign, false);
      return take_closing("%}");
    }
    at_ = start;
    fail("Missing end of raw directive");
  }

  void lex_expression(bool is_variable) {
    std::string open;  // closing brackets that are due
    for (;;) {
      skip_space();
      token_begin_ = at_;
      if (at_ == source_.size()) return;  // the parser meets kEnd and says what it wanted
      if (open.empty() && take_closing(is_variable ? "}}" : "%}")) {
        add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd);
        return;
      }
      const Utf8Char c = decode_utf8(source_, at_);
      if (is_digit_char(source_[at_])) {
        lex_number();
      } else if (is_identifier_char(c.code_point)) {
        lex_name();
      } else if (source_[at_] == '\'' || source_[at_] == '"') {
        lex_string();
      } else {
        lex_operator(open);
      }
    }
  }

  void lex_name() {
    while (at_ < source_.size()) {
      const Utf8Char c = decode_utf8(source_, at_);
      if (!is_identifier_char(c.code_point)) break;
      at_ += c.size;
    }
    add(TokenKind::kName, source_.substr(token_begin_, at_ - token_begin_));
  }

  // digits ('_' may stand between two of them); appends them without '_'.
  template <typename IsDigit>
  static size_t scan_digits(std::string_view text, size_t at, IsDigit is_one, std::string& digits) {
    while (at < text.size()) {
      if (text[at] == '_' && !digits.empty() && at + 1 < text.size() && is_one(text[at + 1])) ++at;
      if (!is_one(text[at])) break;
      digits.push_back(text[at++]);
    }
    return at;
  }

  void lex_number() {
    std::string digits;
    size_t end = scan_digits(source_, at_, is_digit_char, digits);
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    const bool is_float = !after_dot && scan_float(end, digits);
    if (is_float) {
      at_ = end;
      add(TokenKind::kFloat);
      std::from_chars(digits.data(), digits.data() + digits.size(), tokens_.back().real);
      if (digits.find_first_not_of("0.") != std::string::npos && tokens_.back().real == 0) fix_range(digits);
      return;
    }
    lex_integer();
  }

  // from_chars leaves the value alone where it is out of range; Python gives inf or 0.
  void fix_range(const std::string& digits) {
    const size_t e = digits.find_first_of("eE");
    const bool huge = e != std::string::npos && digits[e + 1] != '-' &&
                      digits.substr(0, e).find_first_not_of("0.") != std::string::npos;
    tokens_.back().real = huge ? std::numeric_limits<double>::infinity() : 0;
  }

  // Fraction and exponent after the digits that end at `end`.
  bool scan_float(size_t& end, std::string& digits) {
    bool found = false;
    const auto part = [&](size_t from, std::string head) {
      std::string tail;
      const size_t stop = scan_digits(source_, from, is_digit_char, tail);
      if (tail.empty()) return;
      digits += head + tail;
      end = stop;
      found = true;
    };
    if (end < source_.size() && source_[end] == '.') part(end + 1, ".");
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const bool sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
      part(end + 1 + sign, sign && source_[end + 1] == '-' ? "e-" : "e");
    }
    return found;
  }

  void lex_integer() {
    int base = 10;
    std::string digits;
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char kind = static_cast<char>(source_[at_ + 1] | 0x20);
      base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    }
    const auto is_one = [&](char c) {
      if (base == 16) return is_digit_char(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
      return c >= '0' && c < '0' + base;
    };
    size_t end = base == 10 ? at_ : scan_digits(source_, at_ + 2, is_one, digits);
    if (digits.empty()) {
      base = 10;
      // Python has no decimal number that begins with 0, except zero itself.
      const bool zero = source_[at_] == '0';
      end = scan_digits(
          source_, at_, [&](char c) { return zero ? c == '0' : is_digit_char(c); }, digits);
    }
    add(TokenKind::kInteger);
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), tokens_.back().integer, base);
    if (result.ec != std::errc()) fail("integer " + digits + " is too large");
    at_ = end;
  }

  void lex_string() {
    const char quote = source_[at_++];
    std::string text;
    while (at_ < source_.size() && source_[at_] != quote) {
      if (source_[at_] == '\\' && at_ + 1 < source_.size()) {
        ++at_;
        lex_escape(text);
      } else {
        text.push_back(source_[at_++]);
      }
    }
    if (at_ == source_.size()) {
      at_ = token_begin_;
      fail(std::string("string that begins with ") + quote + " does not end");
    }
    ++at_;
    add(TokenKind::kString, std::move(text));
  }

  // Exactly `count` hexadecimal digits.
  void lex_hex(std::string& text, size_t count) {
    uint32_t value = 0;
    const char* begin = source_.data() + at_;
    const char* end = begin + std::min(count, source_.size() - at_);
    const auto result = std::from_chars(begin, end, value, 16);
    if (static_cast<size_t>(result.ptr - begin) != count) fail("truncated escape in a string");
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fail("escape in a string is not a character");
    append_utf8(text, value);
    at_ += count;
  }

  // at_ stands behind the backslash.
  void lex_escape(std::string& text) {
    static constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
    const char c = source_[at_++];
    if (const size_t i = kFrom.find(c); i != std::string_view::npos) {
      text.push_back(kTo[i]);
    } else if (c == '\n') {
      return;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      lex_hex(text, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c >= '0' && c <= '7') {
      uint32_t value = static_cast<uint32_t>(c - '0');
      for (int n = 1; n < 3 && at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '7'; ++n) {
        value = value * 8 + static_cast<uint32_t>(source_[at_++] - '0');
      }
      append_utf8(text, value);
    } else if (c == 'N') {
      fail("\\N escapes are not supported");
    } else {
      text.push_back('\\');
      text.push_back(c);
    }
  }

  void lex_operator(std::string& open) {
    static constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!starts_with(op)) continue;
      balance(op[0], open);
      at_ += op.size();
      return add(TokenKind::kOperator, std::string(op));
    }
    fail("unexpected character '" + source_.substr(at_, decode_utf8(source_, at_).size) + "'");
  }

  void balance(char c, std::string& open) {
    if (c == '(' || c == '[' || c == '{') {
      open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail(std::string("unexpected '") + c + "'");
      if (open.back() != c) fail(std::string("unexpected '") + c + "', expected '" + open.back() + "'");
      open.pop_back();
    }
  }

  std::string source_;
  size_t at_ = 0, token_begin_ = 0;
  size_t placed_ = 0, line_begin_ = 0;  // place_of has counted lines up to here
  uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(normalize_newlines(source)).run(); }

}  // namespace bw::tokenizer::jinja
