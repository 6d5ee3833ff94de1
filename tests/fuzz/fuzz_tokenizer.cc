// tokenizer.json, and what it makes of short texts.
#include "fuzz/target.h"
#include "tokenizer/text_stream.h"
#include "tokenizer/tokenizer.h"

using namespace bw;

BW_FUZZ_TARGET(tokenizer, input) {
  const auto tokenizer = tokenizer::Tokenizer::from_json(input, "input");
  for (const char* text :
       {"", " ", "Hello, world! It's 2024.\n\n  caf\u00e9 \u4e16\u754c <s></s> aab", "\xff\xc3(", "aaaaaaaaaaaaaaaa"}) {
    for (const bool special : {false, true}) {
      const std::vector<uint32_t> ids =
          tokenizer.encode(text, {.add_special_tokens = special, .parse_special_tokens = special});
      tokenizer::TextStream stream(tokenizer);
      for (const uint32_t id : ids) {
        fuzz::require(special || id < tokenizer.vocab_size(), "an id that no table holds");
        stream.push(id);
      }
      stream.finish();
      tokenizer.decode(ids, false);
    }
  }
}
