#include "tokenizer/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"

namespace bw::tokenizer::jinja {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_letter(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

char32_t to_lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }
char32_t to_upper(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }
char32_t to_title(char32_t c) { return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))); }
// Other_Lowercase and Other_Uppercase letters are left out: nothing that templates spell has them.
bool is_lower_char(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }
bool is_upper_char(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_cased(char32_t c) { return is_lower_char(c) || is_upper_char(c) || category(c) == UTF8PROC_CATEGORY_LT; }

constexpr char32_t kSharpS = 0xDF, kCapitalSigma = 0x3A3, kFinalSigma = 0x3C2;

template <typename Function>
void for_each_char(std::string_view text, Function function) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    function(c.code_point, text.substr(at, c.size));
    at += c.size;
  }
}

template <typename Predicate>
bool all_chars(std::string_view text, Predicate predicate) {
  bool all = !text.empty();
  for_each_char(text, [&](char32_t c, std::string_view) { all = all && predicate(c); });
  return all;
}

// Greek: a capital sigma at the end of a word becomes the final form.
void append_lower(std::string& out, const std::vector<char32_t>& chars, size_t i) {
  if (chars[i] == kCapitalSigma && i > 0 && is_cased(chars[i - 1]) &&
      (i + 1 == chars.size() || !is_cased(chars[i + 1]))) {
    append_utf8(out, kFinalSigma);
  } else {
    append_utf8(out, to_lower(chars[i]));
  }
}

void append_upper(std::string& out, char32_t c) {
  if (c == kSharpS) {
    out += "SS";
  } else {
    append_utf8(out, to_upper(c));
  }
}

void append_title(std::string& out, char32_t c) {
  if (c == kSharpS) {
    out += "Ss";
  } else {
    append_utf8(out, to_title(c));
  }
}

// Offset of the code point that ends at `end`.
size_t previous(std::string_view text, size_t end) {
  do --end;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

std::vector<std::string> split_space(std::string_view text, int64_t limit) {
  std::vector<std::string> parts;
  text = strip(text, std::nullopt, true, false);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.emplace_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const Utf8Char c = decode_utf8(text, end);
      if (is_space(c.code_point)) break;
      end += c.size;
    }
    parts.emplace_back(text.substr(0, end));
    text = strip(text.substr(end), std::nullopt, true, false);
  }
  return parts;
}

std::vector<std::string> rsplit_space(std::string_view text, int64_t limit) {
  std::vector<std::string> parts;
  text = strip(text, std::nullopt, false, true);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.emplace_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      const size_t at = previous(text, begin);
      if (is_space(decode_utf8(text, at).code_point)) break;
      begin = at;
    }
    parts.emplace_back(text.substr(begin));
    text = strip(text.substr(0, begin), std::nullopt, false, true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  const auto k = category(c);
  return k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS;
}

bool is_identifier_char(char32_t c) {
  if (c == '_') return true;
  const auto k = category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_MC) || k == UTF8PROC_CATEGORY_ND ||
         k == UTF8PROC_CATEGORY_NL;
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t at = 0;
  while (index > 0 && at < text.size()) {
    at += decode_utf8(text, at).size;
    --index;
  }
  return at;
}

std::vector<char32_t> code_points(std::string_view text) {
  std::vector<char32_t> out;
  for_each_char(text, [&](char32_t c, std::string_view) { out.push_back(c); });
  return out;
}

std::vector<std::string> split_characters(std::string_view text) {
  std::vector<std::string> out;
  for_each_char(text, [&](char32_t, std::string_view bytes) { out.emplace_back(bytes); });
  return out;
}

std::string_view strip(std::string_view text, std::optional<std::string_view> characters, bool left, bool right) {
  const std::vector<char32_t> set = characters ? code_points(*characters) : std::vector<char32_t>();
  const auto drops = [&](char32_t c) {
    return characters ? std::find(set.begin(), set.end(), c) != set.end() : is_space(c);
  };
  while (left && !text.empty()) {
    const Utf8Char c = decode_utf8(text, 0);
    if (!drops(c.code_point)) break;
    text.remove_prefix(c.size);
  }
  while (right && !text.empty()) {
    const size_t at = previous(text, text.size());
    if (!drops(decode_utf8(text, at).code_point)) break;
    text = text.substr(0, at);
  }
  return text;
}

std::string upper(std::string_view text) {
  std::string out;
  for_each_char(text, [&](char32_t c, std::string_view) { append_upper(out, c); });
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  const std::vector<char32_t> chars = code_points(text);
  for (size_t i = 0; i < chars.size(); ++i) append_lower(out, chars, i);
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  const std::vector<char32_t> chars = code_points(text);
  for (size_t i = 0; i < chars.size(); ++i) i == 0 ? append_title(out, chars[i]) : append_lower(out, chars, i);
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  const std::vector<char32_t> chars = code_points(text);
  for (size_t i = 0; i < chars.size(); ++i) {
    i == 0 || !is_cased(chars[i - 1]) ? append_title(out, chars[i]) : append_lower(out, chars, i);
  }
  return out;
}

std::string title_words(std::string_view text) {
  std::string out, word;
  const auto flush = [&] {
    const size_t first = word.empty() ? 0 : decode_utf8(word, 0).size;
    out += upper(std::string_view(word).substr(0, first)) + lower(std::string_view(word).substr(first));
    word.clear();
  };
  for_each_char(text, [&](char32_t c, std::string_view bytes) {
    if (is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<') {
      flush();
      out += bytes;
    } else {
      word += bytes;
    }
  });
  flush();
  return out;
}

bool is_upper(std::string_view text) {
  bool any = false, wrong = false;
  for_each_char(text, [&](char32_t c, std::string_view) {
    any |= is_upper_char(c);
    wrong |= is_cased(c) && !is_upper_char(c);
  });
  return any && !wrong;
}

bool is_lower(std::string_view text) {
  bool any = false, wrong = false;
  for_each_char(text, [&](char32_t c, std::string_view) {
    any |= is_lower_char(c);
    wrong |= is_cased(c) && !is_lower_char(c);
  });
  return any && !wrong;
}

bool is_alpha(std::string_view text) { return all_chars(text, is_letter); }
bool is_digit(std::string_view text) {
  return all_chars(text, [](char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; });
}
bool is_alnum(std::string_view text) {
  return all_chars(text, [](char32_t c) {
    const auto k = category(c);
    return is_letter(c) || (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
  });
}
bool is_all_space(std::string_view text) { return all_chars(text, is_space); }

std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator, int64_t limit) {
  if (!separator) return split_space(text, limit);
  std::vector<std::string> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = text.find(*separator);
    if (at == std::string_view::npos) break;
    parts.emplace_back(text.substr(0, at));
    text.remove_prefix(at + separator->size());
  }
  parts.emplace_back(text);
  return parts;
}

std::vector<std::string> rsplit(std::string_view text, std::optional<std::string_view> separator, int64_t limit) {
  if (!separator) return rsplit_space(text, limit);
  std::vector<std::string> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = text.rfind(*separator);
    if (at == std::string_view::npos) break;
    parts.emplace_back(text.substr(at + separator->size()));
    text = text.substr(0, at);
  }
  parts.emplace_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    size_t next = at + c.size;
    if (!is_line_break(c.code_point)) {
      at = next;
      continue;
    }
    if (c.code_point == '\r' && next < text.size() && text[next] == '\n') ++next;
    lines.emplace_back(text.substr(begin, (keep_ends ? next : at) - begin));
    begin = at = next;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text, std::string_view old, std::string_view with, int64_t limit) {
  std::string out;
  int64_t done = 0;
  while (limit < 0 || done < limit) {
    size_t at = old.empty() ? 0 : text.find(old);
    if (at == std::string_view::npos) break;
    out.append(text.substr(0, at)).append(with);
    text.remove_prefix(at + old.size());
    ++done;
    if (!old.empty()) continue;
    if (text.empty()) return out;
    const size_t size = decode_utf8(text, 0).size;
    out.append(text.substr(0, size));
    text.remove_prefix(size);
  }
  return out.append(text);
}

}  // namespace bw::tokenizer::jinja
