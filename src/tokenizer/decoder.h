// Decoders: tokens back to text.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "io/json.h"
#include "tokenizer/pattern.h"
#include "tokenizer/pre_tokenizer.h"

namespace bw::tokenizer {

struct UnspellBytes {};  // byte level
struct ReplaceInTokens {
  Pattern pattern;
  std::string content;
};
struct ByteFallback {};  // <0x..> tokens to bytes
struct Fuse {};
struct StripTokens {
  std::string content;  // one character
  size_t start;         // at most so many at the start of every token
  size_t stop;
};
struct WordEnds {  // BPEDecoder
  std::string suffix;
};
using DecoderStep = std::variant<UnspellBytes, ReplaceInTokens, ByteFallback, Fuse, StripTokens, Metaspace, WordEnds>;

struct Decoder {
  bool present = false;  // without a decoder, tokens are joined by spaces
  std::vector<DecoderStep> steps;
};
// Null gives the absent decoder.
Decoder parse_decoder(const io::Json& json);

std::string decode_tokens(const Decoder& decoder, std::vector<std::string> tokens);

}  // namespace bw::tokenizer
