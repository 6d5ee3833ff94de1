// UTF-8: validation, decoding and encoding of code points, and the lenient reading that Python's errors='replace' does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bw {

// What stands at an offset of a text.
struct Utf8Char {
  char32_t code_point = 0xFFFD;
  uint32_t size = 0;  // bytes it takes; of a bad sequence: those that one U+FFFD replaces, at least 1
  bool valid = false;
};

// offset < text.size(). Surrogates, overlong forms and values above U+10FFFF are not valid. A bad sequence takes as
// many bytes as are the beginning of some valid one (the "maximal subpart" of the Unicode standard, section 3.9).
Utf8Char decode_utf8(std::string_view text, size_t offset);

// Offset of the first byte that does not begin a valid sequence; nullopt if the whole text is valid.
std::optional<size_t> find_invalid_utf8(std::string_view text);

// Appends the code point, or U+FFFD for one that UTF-8 cannot hold (surrogates, above U+10FFFF).
void append_utf8(std::string& out, char32_t code_point);

// The text with every bad sequence replaced by U+FFFD, as Python's bytes.decode('utf-8', errors='replace') does.
std::string replace_invalid_utf8(std::string_view text);

// Code points of a valid text.
size_t count_code_points(std::string_view text);

}  // namespace bw
