// Normalizers: text to text, before anything is cut.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "io/json.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode_normal.h"

namespace bw::tokenizer {

struct ReplaceText {
  Pattern pattern;
  std::string content;
};
struct PrependText {
  std::string content;
};
struct StripText {
  bool left;
  bool right;
};
struct LowercaseText {};
struct StripAccentsText {};
struct SpellBytesText {};  // the byte-level alphabet
using NormalizerStep =
    std::variant<NormalForm, ReplaceText, PrependText, StripText, LowercaseText, StripAccentsText, SpellBytesText>;

// The steps in order, sequences flattened. Null gives none.
std::vector<NormalizerStep> parse_normalizer(const io::Json& json);

// `text`: valid UTF-8. `at_start` is true if the text begins where the input begins; cleared when a step drops its
// first character.
std::string normalize(const std::vector<NormalizerStep>& steps, std::string text, bool& at_start);

}  // namespace bw::tokenizer
