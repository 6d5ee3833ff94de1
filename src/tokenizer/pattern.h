// Patterns of normalizers, pre-tokenizers and decoders: a string or a regular expression, and how a text is cut at
// them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/json.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace bw::tokenizer {

using Pattern = std::variant<std::string, Regex>;

// {"String": ...} or {"Regex": ...}, the field "pattern" of `object`.
Pattern parse_pattern(const io::Json& object, const std::string& where);

struct Part {
  size_t begin;
  size_t end;
  bool is_match;
};
// Covers `text` with the matches and what lies between them, in order.
void find_parts(const Pattern& pattern, std::string_view text, std::vector<Part>& parts);
// The same for single characters that satisfy `test`.
template <typename Test>
void find_characters(Test&& test, std::string_view text, std::vector<Part>& parts);

// Steps that lengthen a text may follow one another, and multiply: a text of `size` bytes may become this long on its
// way through all of them. check_growth throws Error(kModel) for a text that is longer.
constexpr size_t most_bytes(size_t size) { return 1024 + 64 * size; }
void check_growth(size_t size, size_t most);

// Throws Error(kModel) if the result were longer than `most` bytes.
std::string replace_all(const Pattern& pattern, std::string_view text, std::string_view content, size_t most);

// What becomes of a delimiter.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
Behavior parse_behavior(const io::Json& object, Behavior absent, const std::string& where);
// Merges and drops parts in place, so that the pieces of the text remain.
void apply_behavior(Behavior behavior, std::vector<Part>& parts);

template <typename Test>
void find_characters(Test&& test, std::string_view text, std::vector<Part>& parts) {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.substr(at));
    if (test(c.value)) {
      if (done < at) parts.push_back({done, at, false});
      done = at + c.length;
      parts.push_back({at, done, true});
    }
    at += c.length;
  }
  if (done < text.size()) parts.push_back({done, text.size(), false});
}

}  // namespace bw::tokenizer
