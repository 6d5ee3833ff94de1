#include "base/utf8.h"

#include <cstring>

namespace bw {
namespace {

bool is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Bytes of the sequence that `lead` opens (0: it opens none), and the range that its second byte must lie in: that is
// where overlong forms, surrogates and values that are too large are told apart (table 3-7 of the Unicode standard).
struct Lead {
  uint32_t size;
  uint8_t low, high;
};

Lead lead_of(uint8_t lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead < 0xF0)
    return {3, static_cast<uint8_t>(lead == 0xE0 ? 0xA0 : 0x80), static_cast<uint8_t>(lead == 0xED ? 0x9F : 0xBF)};
  if (lead < 0xF5)
    return {4, static_cast<uint8_t>(lead == 0xF0 ? 0x90 : 0x80), static_cast<uint8_t>(lead == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

// Offset of the first byte >= 0x80 at or after `offset`.
size_t skip_ascii(std::string_view text, size_t offset) {
  while (offset + 8 <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + offset, 8);
    if (word & 0x8080808080808080u) break;
    offset += 8;
  }
  while (offset < text.size() && static_cast<uint8_t>(text[offset]) < 0x80) ++offset;
  return offset;
}

}  // namespace

Utf8Char decode_utf8(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[offset + i]); };
  const uint8_t first = byte(0);
  const Lead lead = lead_of(first);
  if (lead.size == 1) return {first, 1, true};
  if (lead.size == 0) return {0xFFFD, 1, false};
  const size_t left = text.size() - offset;
  if (left < 2 || byte(1) < lead.low || byte(1) > lead.high) return {0xFFFD, 1, false};
  char32_t value = first & (0x7Fu >> lead.size);
  for (uint32_t i = 1; i < lead.size; ++i) {
    if (i >= left || !is_continuation(byte(i))) return {0xFFFD, i, false};
    value = value << 6 | (byte(i) & 0x3Fu);
  }
  return {value, lead.size, true};
}

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  for (size_t at = skip_ascii(text, 0); at < text.size(); at = skip_ascii(text, at)) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid) return at;
    at += c.size;
  }
  return std::nullopt;
}

void append_utf8(std::string& out, char32_t c) {
  if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) c = 0xFFFD;
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<uint8_t>(byte))); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t plain = skip_ascii(text, at);
    out.append(text, at, plain - at);
    at = plain;
    if (at == text.size()) break;
    const Utf8Char c = decode_utf8(text, at);
    append_utf8(out, c.code_point);
    at += c.size;
  }
  return out;
}

size_t count_code_points(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += !is_continuation(static_cast<uint8_t>(c));
  return n;
}

}  // namespace bw
