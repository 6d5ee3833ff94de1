// A regular expression of a tokenizer, up to the first zero byte, on the text behind it (or a sample).
#include "fuzz/target.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

using namespace bw;

BW_FUZZ_TARGET(regex, input) {
  const size_t zero = input.find('\0');
  const auto regex = tokenizer::Regex::compile(input.substr(0, zero));
  const std::string_view given =
      zero == std::string_view::npos
          ? "Hello, world! It's 2024.\r\n\n  caf\u00e9 \u4e16\u754c aaaaaaaaaaaaaaaaaaaaaaaa!"
          : input.substr(zero + 1);
  std::string storage;
  const std::string_view text = tokenizer::valid_utf8(given, storage);
  tokenizer::RegexSearch search(regex, text);
  size_t done = 0;
  for (tokenizer::Match match{}; search.next(match); done = match.end) {
    fuzz::require(match.begin >= done && match.begin <= match.end && match.end <= text.size(), "matches overlap");
  }
}
