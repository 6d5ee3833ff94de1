// UTF-8, character classes and the byte-level alphabet, as the `tokenizers` library defines them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace bw::tokenizer {

struct CodePoint {
  char32_t value;
  size_t length;  // bytes in UTF-8
};

// First code point of `text`, which must be valid UTF-8 and not empty.
inline CodePoint first_code_point(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3Fu), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu), 4};
}

// Last code point of valid UTF-8 that is not empty.
CodePoint last_code_point(std::string_view text);

// `text` itself if it is valid UTF-8; otherwise `storage`, filled with `text` where U+FFFD replaces what is not.
std::string_view valid_utf8(std::string_view text, std::string& storage);

bool is_whitespace(char32_t c);    // White_Space
bool is_numeric(char32_t c);       // Nd, Nl, No
bool is_punctuation(char32_t c);   // what the Punctuation pre-tokenizer splits at
bool is_mark(char32_t c);          // Mn, Mc, Me, as far as the normalizers know them
bool is_unknown_mark(char32_t c);  // a mark that the normalizers do not know: an ordinary character to them
bool is_word(char32_t c);          // \w of added tokens and of the Whitespace pre-tokenizer
void append_lowercase(std::string& out, char32_t c);

// Regular expressions see Unicode 14 in every supported PCRE2; newer code points are shown to them as older ones of the
// same category and length. Returns `text` itself if it has none.
std::string_view with_stand_ins(std::string_view text, std::string& storage);

// The byte-level alphabet: every byte has a printable character.
struct SpelledByte {
  char text[2];
  uint8_t length;
};
const std::array<SpelledByte, 256>& byte_spelling();
// The byte whose character is `c`.
std::optional<uint8_t> spelled_byte(char32_t c);
// Appends the byte-level spelling of all bytes of `text`.
void append_spelled(std::string& out, std::string_view text);

}  // namespace bw::tokenizer
