#include "tokenizer/pre_tokenizer.h"

#include <cstring>

#include "tokenizer/tokenizer_json.h"
#include "tokenizer/unicode.h"

namespace bw::tokenizer {
namespace {

constexpr int kMaxNesting = 16;
constexpr std::string_view kGpt2Words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

void parse_into(const io::Json& json, int depth, std::vector<PreTokenizerStep>& steps) {
  const std::string type = component_type(json, "pre_tokenizer");
  const std::string where = "pre_tokenizer " + type;
  if (type == "Sequence") {
    if (depth >= kMaxNesting) bad_tokenizer("pre_tokenizer: sequences nested too deep");
    for (const io::Json& item : array_field(json, "pretokenizers", where)) parse_into(item, depth + 1, steps);
  } else if (type == "ByteLevel") {
    steps.emplace_back(SpellBytes{bool_field(json, "add_prefix_space", true, where),
                                  bool_field(json, "use_regex", true, where), Regex::compile(kGpt2Words)});
  } else if (type == "Split") {
    steps.emplace_back(SplitWords{parse_pattern(json, where), parse_behavior(json, Behavior::kIsolated, where),
                                  bool_field(json, "invert", false, where)});
  } else if (type == "Digits") {
    const bool individual = bool_field(json, "individual_digits", false, where);
    steps.emplace_back(
        SplitCharacters{CharacterClass::kDigit, individual ? Behavior::kIsolated : Behavior::kContiguous});
  } else if (type == "WhitespaceSplit") {
    steps.emplace_back(SplitCharacters{CharacterClass::kWhitespace, Behavior::kRemoved});
  } else if (type == "Punctuation") {
    steps.emplace_back(SplitCharacters{CharacterClass::kPunctuation, parse_behavior(json, Behavior::kIsolated, where)});
  } else if (type == "Whitespace") {
    steps.emplace_back(SplitWordCharacters{});
  } else if (type == "Metaspace") {
    steps.emplace_back(parse_metaspace(json, where));
  } else {
    bad_tokenizer("pre_tokenizer " + shown(type) + " is not supported");
  }
}

// Replaces every word by the parts that find(word, parts) leaves of it.
template <typename Find>
void cut(Words& words, Find&& find) {
  std::vector<size_t> ends;
  ends.reserve(words.ends.size());
  std::vector<Part> parts;
  size_t begin = 0;
  size_t written = 0;  // text[0, written) is kept; what was dropped is closed up in place
  for (const size_t end : words.ends) {
    parts.clear();
    find(std::string_view(words.text).substr(begin, end - begin), parts);
    if (begin == 0 && (parts.empty() || parts.front().begin > 0)) words.at_start = false;
    for (const Part& part : parts) {
      const size_t length = part.end - part.begin;
      if (length == 0) continue;
      if (written != begin + part.begin) std::memmove(&words.text[written], &words.text[begin + part.begin], length);
      written += length;
      ends.push_back(written);
    }
    begin = end;
  }
  words.text.resize(written);
  words.ends = std::move(ends);
}

// Rewrites every word: append(word, is_first, text) writes it to the new text.
template <typename Append>
void rewrite(Words& words, Append&& append) {
  std::string text;
  text.reserve(words.text.size() + words.text.size() / 4);
  size_t begin = 0;
  for (size_t& end : words.ends) {
    append(std::string_view(words.text).substr(begin, end - begin), begin == 0, text);
    begin = end;
    end = text.size();
  }
  words.text = std::move(text);
}

bool belongs(CharacterClass characters, char32_t c) {
  switch (characters) {
    case CharacterClass::kDigit:
      return is_numeric(c);
    case CharacterClass::kWhitespace:
      return is_whitespace(c);
    case CharacterClass::kPunctuation:
      return is_punctuation(c);
  }
  return false;
}

struct Apply {
  Words& words;

  void operator()(const SplitWords& step) const {
    cut(words, [&](std::string_view word, std::vector<Part>& parts) {
      find_parts(step.pattern, word, parts);
      for (Part& part : parts) part.is_match ^= step.invert;
      apply_behavior(step.behavior, parts);
    });
  }
  void operator()(const SpellBytes& step) const {
    if (step.add_prefix_space) {
      rewrite(words, [](std::string_view word, bool, std::string& text) {
        if (word.front() != ' ') text += ' ';
        text.append(word);
      });
    }
    if (step.use_regex) {
      cut(words, [&](std::string_view word, std::vector<Part>& parts) { find_parts(step.words, word, parts); });
    }
    rewrite(words, [](std::string_view word, bool, std::string& text) { append_spelled(text, word); });
  }
  void operator()(const SplitCharacters& step) const {
    cut(words, [&](std::string_view word, std::vector<Part>& parts) {
      find_characters([&](char32_t c) { return belongs(step.characters, c); }, word, parts);
      apply_behavior(step.behavior, parts);
    });
  }
  void operator()(SplitWordCharacters) const {
    cut(words, [](std::string_view word, std::vector<Part>& parts) {
      char32_t last_kind = 0;
      for (size_t at = 0; at < word.size();) {
        const CodePoint c = first_code_point(word.substr(at));
        const char32_t kind = is_word(c.value) ? 1 : is_whitespace(c.value) ? 2 : 3;
        if (kind == 2) {
          last_kind = kind;
        } else if (kind == last_kind) {
          parts.back().end += c.length;
        } else {
          parts.push_back({at, at + c.length, true});
          last_kind = kind;
        }
        at += c.length;
      }
    });
  }
  void operator()(const Metaspace& step) const {
    rewrite(words, [&](std::string_view word, bool is_first, std::string& text) {
      const bool wanted = step.prepend == PrependScheme::kAlways ||
                          (step.prepend == PrependScheme::kFirst && is_first && words.at_start);
      if (wanted && word.front() != ' ' && !word.starts_with(step.replacement)) text.append(step.replacement);
      for (const char c : word) {
        if (c == ' ') {
          text.append(step.replacement);
        } else {
          text += c;
        }
      }
    });
    if (!step.split) return;
    cut(words, [&](std::string_view word, std::vector<Part>& parts) {
      find_parts(step.replacement, word, parts);
      apply_behavior(Behavior::kMergedWithNext, parts);
    });
  }
};

}  // namespace

std::vector<PreTokenizerStep> parse_pre_tokenizer(const io::Json& json) {
  std::vector<PreTokenizerStep> steps;
  if (!json.is_null()) parse_into(json, 0, steps);
  return steps;
}

Metaspace parse_metaspace(const io::Json& json, const std::string& where) {
  Metaspace result{string_field(json, "replacement", "\xE2\x96\x81", where), PrependScheme::kAlways,
                   bool_field(json, "split", true, where)};
  if (result.replacement.empty() || first_code_point(result.replacement).length != result.replacement.size()) {
    bad_tokenizer(where + ": \"replacement\" must be one character");
  }
  const std::string scheme = string_field(json, "prepend_scheme", "", where);
  if (scheme == "first") {
    result.prepend = PrependScheme::kFirst;
  } else if (scheme == "never") {
    result.prepend = PrependScheme::kNever;
  } else if (!scheme.empty() && scheme != "always") {
    bad_tokenizer(where + ": prepend_scheme " + shown(scheme) + " is not known");
  }
  if (!bool_field(json, "add_prefix_space", true, where)) {  // how older files say "never"
    if (!scheme.empty() && scheme != "never") bad_tokenizer(where + ": add_prefix_space contradicts prepend_scheme");
    result.prepend = PrependScheme::kNever;
  }
  return result;
}

void pre_tokenize(const std::vector<PreTokenizerStep>& steps, Words& words) {
  const size_t most = most_bytes(words.text.size());
  for (const PreTokenizerStep& step : steps) {
    std::visit(Apply{words}, step);
    check_growth(words.text.size(), most);
  }
}

}  // namespace bw::tokenizer
