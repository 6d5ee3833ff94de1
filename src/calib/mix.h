// Rows out of sources of text, and what they are made of.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bitwright/options.h"
#include "calib/rows.h"
#include "calib/sources.h"
#include "tokenizer/chat_template.h"

namespace bw::calib {

struct Mix {
  Rows rows;
  Rows held_out;                           // of the same text, but in none of the rows (see held_out.h); perhaps empty
  std::vector<std::string> row_sources;    // a name for each row
  std::vector<CalibrationSource> sources;  // in the order given
};

// `count` rows of `length` tokens. Without weights all sources are one text, one after the other, and rows stand in it
// at even distances; with weights each source gives its share of the rows (shares are rounded so that they add up), at
// even distances through its own text, source after source. A source of rows of token ids gives them as they are: all,
// or so many at even distances. Where a text has tokens left, rows are held out of it, of each source its share.
// Messages go through `chat`, which is null for a model without a template; special tokens are parsed in messages only.
//
// Throws what io::read_documents throws; Error(kUsage) where a text is too short or rows are too few or of another
// length, where a source would give no row, and where rows of ids and text would have to be one text; Error(kModel)
// naming file and line for messages without a template, and for rows whose ids this tokenizer reads as another text
// than the one that stands beside them.
Mix mix_sources(const tokenizer::Tokenizer& tokenizer, const tokenizer::ChatTemplate* chat,
                std::span<const Source> sources, size_t count, size_t length);

// The mix of rows that the model has written itself.
Mix mix_of(Rows rows, Rows held_out);

// The rows as a .jsonl file for `mix_sources`: ids, the text they read as, and their source.
std::string rows_file(const Mix& mix, const tokenizer::Tokenizer& tokenizer);

}  // namespace bw::calib
