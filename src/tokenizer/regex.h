// Regular expressions of tokenizer files (Oniguruma's syntax) on PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace bw::tokenizer {

struct Match {
  size_t begin;
  size_t end;
};

// Immutable; shared by copies. Thread-safe.
class Regex {
 public:
  // Throws Error(kModel) for a pattern that is damaged or uses a construct without an equivalent.
  static Regex compile(std::string_view oniguruma_pattern);

 private:
  friend class RegexSearch;
  struct Code;
  std::shared_ptr<const Code> code_;
};

// The successive matches of a regex in one text: leftmost first, none overlapping, no empty match right after a match.
// `text` (valid UTF-8) and the regex must outlive it.
class RegexSearch {
 public:
  RegexSearch(const Regex& regex, std::string_view text);
  ~RegexSearch();
  RegexSearch(const RegexSearch&) = delete;
  RegexSearch& operator=(const RegexSearch&) = delete;

  // False at the end. Throws Error(kModel) if the pattern needs more than its bounded work or memory on this text.
  bool next(Match& match);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// PCRE2's spelling of an Oniguruma pattern (exposed for tests).
std::string translate_pattern(std::string_view oniguruma_pattern);

}  // namespace bw::tokenizer
