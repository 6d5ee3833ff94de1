// Text that grows token by token, for showing it while a model writes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace bw::tokenizer {

// The pieces of all calls together are tokenizer.decode(ids). Every piece is whole UTF-8 characters, which no later
// token changes: the bytes of a character that is spread over tokens wait for the last of them, and tokens that stand
// for single bytes (<0x0A>) for the end of their run. The work of a token does not grow with the text.
class TextStream {
 public:
  // `tokenizer` must outlive the stream.
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // What the next token adds to the text; may be empty.
  std::string push(uint32_t id);
  // What is still held back. Afterwards the stream is at its end.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  // The tokens since the last place where the text was certain, with some before them: how a token is decoded may
  // depend on whether it is the first.
  std::vector<uint32_t> window_;
  size_t context_ = 0;  // tokens of the window that are handed out
  size_t sent_ = 0;     // bytes of the window's text that are handed out
};

}  // namespace bw::tokenizer
