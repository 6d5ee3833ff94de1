// Python's str methods on valid UTF-8: positions are code points, character classes those of Unicode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bw::tokenizer::jinja {

bool is_space(char32_t c);
bool is_printable(char32_t c);
// Letters, marks, digits and '_'.
bool is_identifier_char(char32_t c);

// Byte offset of code point `index`; text.size() if there are not so many.
size_t byte_offset(std::string_view text, size_t index);
std::vector<char32_t> code_points(std::string_view text);
// Every code point as a string of its own.
std::vector<std::string> split_characters(std::string_view text);

// Without the code points of `characters` (nullopt: white space) on the sides asked for.
std::string_view strip(std::string_view text, std::optional<std::string_view> characters, bool left, bool right);
inline std::string_view strip_space(std::string_view text) { return strip(text, std::nullopt, true, true); }

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
// str.title(): words are runs of cased letters.
std::string title(std::string_view text);
// The `title` filter: words begin after white space and any of -({[< .
std::string title_words(std::string_view text);
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);
// Whether the text has code points, all of them letters / digits / either.
bool is_alpha(std::string_view text);
bool is_digit(std::string_view text);
bool is_alnum(std::string_view text);
bool is_all_space(std::string_view text);

// str.split / rsplit: nullopt splits at white space; `limit` < 0: no limit. The separator must not be empty.
std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator, int64_t limit);
std::vector<std::string> rsplit(std::string_view text, std::optional<std::string_view> separator, int64_t limit);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
// str.replace; `limit` < 0: all. An empty `old` matches between all code points.
std::string replace(std::string_view text, std::string_view old, std::string_view with, int64_t limit);

}  // namespace bw::tokenizer::jinja
