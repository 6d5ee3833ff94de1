#include "calib/rows.h"

#include <algorithm>

#include <fmt/format.h>

#include "bitwright/error.h"

namespace bw::calib {
namespace {

constexpr size_t kPieceCharacters = size_t{1} << 18;

// End of the piece of at most kPieceCharacters code points that begins at `begin`.
size_t piece_end(std::string_view text, size_t begin) {
  size_t characters = 0, at = begin;
  while (at < text.size()) {
    const bool starts = (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
    if (starts && characters++ == kPieceCharacters) break;
    ++at;
  }
  return at;
}

}  // namespace

std::vector<uint32_t> tokenize_long(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                                    bool parse_special_tokens) {
  std::vector<uint32_t> ids;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = piece_end(text, begin);
    const std::vector<uint32_t> piece = tokenizer.encode(
        text.substr(begin, end - begin), {.add_special_tokens = false, .parse_special_tokens = parse_special_tokens});
    ids.insert(ids.end(), piece.begin(), piece.end());
    begin = end;
  }
  return ids;
}

size_t row_start(size_t i, size_t count, size_t tokens, size_t body) {
  return i * (tokens - body) / std::max<size_t>(1, count - 1);
}

Rows rows_from_stream(std::span<const uint32_t> stream, std::span<const uint32_t> prefix, size_t count, size_t length,
                      const std::string& source) {
  if (count == 0 || length <= prefix.size() + 1) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} rows of {} tokens make no sense: at least 1 row of {} tokens is needed", count, length,
                            prefix.size() + 2));
  }
  const size_t body = length - prefix.size();
  if (count > stream.size() / body) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: {} rows of {} tokens need {} tokens of text, found {}", source, count, length,
                            count * body, stream.size()),
                "give more text, or ask for fewer or shorter rows");
  }
  Rows rows;
  rows.length = length;
  rows.source = source;
  rows.ids.reserve(count * length);
  for (size_t i = 0; i < count; ++i) {
    const size_t start = row_start(i, count, stream.size(), body);
    rows.ids.insert(rows.ids.end(), prefix.begin(), prefix.end());
    rows.ids.insert(rows.ids.end(), stream.begin() + static_cast<ptrdiff_t>(start),
                    stream.begin() + static_cast<ptrdiff_t>(start + body));
  }
  return rows;
}

size_t spread_row(size_t i, size_t count, size_t all) { return (2 * i + 1) * all / (2 * count); }

Rows some_of(const Rows& rows, size_t count) {
  if (count >= rows.count()) return rows;
  Rows some;
  some.length = rows.length;
  some.source = rows.source;
  for (size_t i = 0; i < count; ++i) {
    const std::span<const uint32_t> row = rows.row(spread_row(i, count, rows.count()));
    some.ids.insert(some.ids.end(), row.begin(), row.end());
  }
  return some;
}

void check_ids(const Rows& rows, const tokenizer::Tokenizer& tokenizer, size_t vocab_rows) {
  for (const uint32_t id : rows.ids) {
    if (id >= vocab_rows) {
      throw Error(ErrorCode::kModel,
                  fmt::format("{}: the tokenizer gives id {} ('{}'), but the model has {} embedding rows", rows.source,
                              id, tokenizer.id_to_token(id).value_or("?"), vocab_rows),
                  "tokenizer.json and the weights do not belong together");
    }
  }
}

}  // namespace bw::calib
