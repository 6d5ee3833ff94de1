#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace bw {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Char decoded = decode_utf8(text, 0);
    ASSERT_TRUE(decoded.valid) << static_cast<uint32_t>(c);
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.size, text.size());
  }
}

TEST(Utf8, WhatUtf8CannotHoldBecomesTheReplacement) {
  for (const char32_t c : {char32_t{0xD800}, char32_t{0xDFFF}, char32_t{0x110000}, char32_t{0xFFFFFFFF}}) {
    std::string text;
    append_utf8(text, c);
    EXPECT_EQ(text, "\xEF\xBF\xBD");
  }
}

TEST(Utf8, FindInvalid) {
  EXPECT_FALSE(find_invalid_utf8(""));
  EXPECT_FALSE(find_invalid_utf8("plain text of more than eight bytes, Grüße 世界 👋"));
  EXPECT_EQ(find_invalid_utf8("abc\x80"), 3u);
  EXPECT_EQ(find_invalid_utf8("0123456789\xC3"), 10u);
  EXPECT_EQ(find_invalid_utf8("é\xED\xA0\x80"), 2u);
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);
  EXPECT_EQ(find_invalid_utf8("\xC0\xAF"), 0u);
  EXPECT_EQ(find_invalid_utf8("ab\xE4\xB8"), 2u);
}

// The expected texts are those of Python's bytes.decode("utf-8", "replace"); R stands for U+FFFD.
TEST(Utf8, ReplaceInvalid) {
  const auto replaced = [](std::string_view bytes) {
    std::string out = replace_invalid_utf8(bytes);
    for (size_t at = 0; (at = out.find("\xEF\xBF\xBD")) != std::string::npos;) out.replace(at, 3, "R");
    return out;
  };
  EXPECT_EQ(replaced(""), "");
  EXPECT_EQ(replaced("Grüße"), "Grüße");
  EXPECT_EQ(replaced("\xFF\xFE"), "RR");
  EXPECT_EQ(replaced("a\x80z"), "aRz");
  EXPECT_EQ(replaced("\xC0\xAF"), "RR");
  EXPECT_EQ(replaced("\xC3"), "R");
  EXPECT_EQ(replaced("\xC3("), "R(");
  EXPECT_EQ(replaced("\xE4\xB8"), "R");
  EXPECT_EQ(replaced("\xE4\xB8z"), "Rz");
  EXPECT_EQ(replaced("\xE0\x80\x80"), "RRR");
  EXPECT_EQ(replaced("\xED\xA0\x80"), "RRR");
  EXPECT_EQ(replaced("\xF0\x9F\x91"), "R");
  EXPECT_EQ(replaced("\xF0\x9F\x91z"), "Rz");
  EXPECT_EQ(replaced("\xF0\x8F\xBF\xBF"), "RRRR");
  EXPECT_EQ(replaced("\xF4\x90\x80\x80"), "RRRR");
  EXPECT_EQ(replaced("\xF5\x80\x80\x80"), "RRRR");
  EXPECT_EQ(replaced("\xF1\x80\x80\xE1\x80\xC2"), "RRR");
}

TEST(Utf8, CountCodePoints) {
  EXPECT_EQ(count_code_points(""), 0u);
  EXPECT_EQ(count_code_points("aé世👋"), 4u);
}

}  // namespace
}  // namespace bw
