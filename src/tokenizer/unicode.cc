#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "tokenizer/unicode_tables.h"

namespace bw::tokenizer {
namespace {

// The range of a sorted table that holds `c`, or null.
template <typename Range, size_t n>
const Range* find_range(const Range (&table)[n], char32_t c) {
  const auto* it = std::upper_bound(std::begin(table), std::end(table), c,
                                    [](char32_t value, const Range& range) { return value < range.first; });
  if (it == std::begin(table)) return nullptr;
  --it;
  return c <= it->last ? it : nullptr;
}

utf8proc_category_t category(char32_t c) {
  const StandInRange* range = c < 0x800 ? nullptr : find_range(kNewCodePoints, c);
  return utf8proc_category(static_cast<utf8proc_int32_t>(range ? range->stand_in : c));
}

constexpr bool is_ascii_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

}  // namespace

CodePoint last_code_point(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return first_code_point(text.substr(begin));
}

std::string_view valid_utf8(std::string_view text, std::string& storage) {
  if (!find_invalid_utf8(text)) return text;
  storage = replace_invalid_utf8(text);
  return storage;
}

bool is_whitespace(char32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  // Digits of Unicode 17, which this class of the reference follows although its regular expressions do not.
  if ((c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6)) return true;
  const utf8proc_category_t k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return is_ascii_punctuation(c);
  // Two code points that were punctuation in the old data of the reference.
  if (c == 0x166D || c == 0x111C9) return true;
  if (find_range(kNewCodePoints, c) || find_range(kUnknownPunctuation, c)) return false;
  const utf8proc_category_t k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t c) {
  if (c < 0x300) return false;
  if (c == 0x1CF2 || c == 0x1CF3) return true;  // were marks in the old data of the reference
  if (is_unknown_mark(c) || find_range(kNewCodePoints, c)) return false;
  const utf8proc_category_t k = category(c);
  return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}

bool is_unknown_mark(char32_t c) { return c >= 0x300 && find_range(kUnknownMarks, c) != nullptr; }

bool is_word(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  if (c == 0x200C || c == 0x200D) return true;
  // Letters in circles and squares are Alphabetic without being letters.
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
      (c >= 0x1F170 && c <= 0x1F189)) {
    return true;
  }
  const utf8proc_category_t k = category(c);
  return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC;
}

void append_lowercase(std::string& out, char32_t c) {
  if (c == 0x130) {  // the one code point whose full lower case is two
    out += "i\xCC\x87";
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

std::string_view with_stand_ins(std::string_view text, std::string& storage) {
  bool copied = false;
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0xE0) {
      ++i;  // continuation bytes of two-byte sequences are below 0xE0 as well
      continue;
    }
    const CodePoint c = first_code_point(text.substr(i));
    const StandInRange* range = c.value >= 0x3400 && c.value < 0xA000 ? nullptr : find_range(kNewCodePoints, c.value);
    if (range != nullptr) {
      if (!copied) storage.assign(text);
      copied = true;
      std::string stand_in;
      append_utf8(stand_in, range->stand_in);
      storage.replace(i, c.length, stand_in);
    }
    i += c.length;
  }
  return copied ? std::string_view(storage) : text;
}

const std::array<SpelledByte, 256>& byte_spelling() {
  static const std::array<SpelledByte, 256> table = [] {
    std::array<SpelledByte, 256> result{};
    char32_t next = 256;
    for (unsigned b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      std::string spelled;
      append_utf8(spelled, printable ? b : next++);
      std::copy(spelled.begin(), spelled.end(), result[b].text);
      result[b].length = static_cast<uint8_t>(spelled.size());
    }
    return result;
  }();
  return table;
}

std::optional<uint8_t> spelled_byte(char32_t c) {
  static const std::array<int16_t, 0x144> bytes = [] {
    std::array<int16_t, 0x144> result;
    result.fill(-1);
    for (unsigned b = 0; b < 256; ++b) {
      const SpelledByte& s = byte_spelling()[b];
      result[first_code_point({s.text, s.length}).value] = static_cast<int16_t>(b);
    }
    return result;
  }();
  if (c >= bytes.size() || bytes[c] < 0) return std::nullopt;
  return static_cast<uint8_t>(bytes[c]);
}

void append_spelled(std::string& out, std::string_view text) {
  const auto& table = byte_spelling();
  const size_t begin = out.size();
  out.resize(begin + 2 * text.size());
  char* to = out.data() + begin;
  for (const char c : text) {
    const SpelledByte& s = table[static_cast<unsigned char>(c)];
    to[0] = s.text[0];
    to[1] = s.text[1];
    to += s.length;
  }
  out.resize(static_cast<size_t>(to - out.data()));
}

}  // namespace bw::tokenizer
