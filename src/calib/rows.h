// Rows of calibration or evaluation: token ids of equal length.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace bw::calib {

struct Rows {
  size_t length = 0;
  std::vector<uint32_t> ids;  // row after row
  std::string source;         // for reports: file names, or "self-generated"

  size_t count() const { return length == 0 ? 0 : ids.size() / length; }
  std::span<const uint32_t> row(size_t i) const { return {ids.data() + i * length, length}; }
};

// Token ids of a long text, tokenized in pieces of 2^18 characters (so that memory stays small; the cut may fall into a
// word).
std::vector<uint32_t> tokenize_long(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                                    bool parse_special_tokens);

// `count` rows at even distances through `stream`, each begun with `prefix` (BOS, where the tokenizer adds one).
// (row_start() says where.) Throws Error(kUsage) naming `source`, the tokens needed and the tokens there if the stream
// is too short, or if the prefix leaves no room.
Rows rows_from_stream(std::span<const uint32_t> stream, std::span<const uint32_t> prefix, size_t count, size_t length,
                      const std::string& source);

// Where in a stream of `tokens` tokens the row `i` of `count` begins, which takes `body` of them.
size_t row_start(size_t i, size_t count, size_t tokens, size_t body);

// The i-th of `count` rows of `all`, at even distances.
size_t spread_row(size_t i, size_t count, size_t all);
// `count` of the rows, at even distances; all of them if there are no more.
Rows some_of(const Rows& rows, size_t count);

// Throws Error(kModel) naming the first id that is not below `vocab_rows`, with its token.
void check_ids(const Rows& rows, const tokenizer::Tokenizer& tokenizer, size_t vocab_rows);

}  // namespace bw::calib
