// Pre-tokenizers: text to words, which the model then encodes one by one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/json.h"
#include "tokenizer/pattern.h"

namespace bw::tokenizer {

// Word i is text[ends[i - 1], ends[i]); none is empty.
struct Words {
  std::string text;
  std::vector<size_t> ends;
  bool at_start = true;  // the first word begins where the input begins
};

struct SplitWords {
  Pattern pattern;
  Behavior behavior;
  bool invert;
};
struct SpellBytes {  // byte level
  bool add_prefix_space;
  bool use_regex;
  Pattern words;  // the words of GPT-2
};
enum class CharacterClass { kDigit, kWhitespace, kPunctuation };
struct SplitCharacters {
  CharacterClass characters;
  Behavior behavior;
};
struct SplitWordCharacters {};  // Whitespace: runs of \w, and of what is neither \w nor white space
enum class PrependScheme { kAlways, kFirst, kNever };
struct Metaspace {
  std::string replacement;
  PrependScheme prepend;
  bool split;
};
using PreTokenizerStep = std::variant<SplitWords, SpellBytes, SplitCharacters, SplitWordCharacters, Metaspace>;

// The steps in order, sequences flattened. Null gives none.
std::vector<PreTokenizerStep> parse_pre_tokenizer(const io::Json& json);
// Fields that the Metaspace pre-tokenizer and decoder share.
Metaspace parse_metaspace(const io::Json& json, const std::string& where);

void pre_tokenize(const std::vector<PreTokenizerStep>& steps, Words& words);

}  // namespace bw::tokenizer
