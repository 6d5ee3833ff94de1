// Texts for calibration and evaluation, from files of people: plain text, or one JSON object a line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"

namespace bw::io {

// One text, one conversation, or one row of token ids.
struct TextDocument {
  std::string text;                             // valid UTF-8; empty for a conversation; of a row: what it reads as
  OrderedJson messages = OrderedJson::array();  // [{"role": ..., "content": ...}, ...]; empty for a text
  bool is_chat = false;
  std::vector<uint32_t> ids;  // of a row, at least one; else empty
  std::string source;         // of a row: where it comes from, for reports; empty: that is not known
  size_t line = 1;            // of the file, counted from 1
};

// .jsonl, .ndjson: one object a line with "token_ids" (a row; "text" and "source" may stand beside them), "text",
// "messages", or "conversations" (ShareGPT: from, value); blank lines are skipped. .json: the same, or one list of such
// objects. .parquet, where this program reads it: the same keys are columns, and a document's line is its row.
// Everything else: the whole file is one text. A byte order mark is skipped. Never returns an empty list. Throws
// Error(kIo) if the file cannot be read, and Error(kModel) naming the file and, where there are lines, the line:
// invalid UTF-8 or a zero byte (with its offset), bad JSON, an object with none of the keys, an empty file, a
// compressed or other binary file; for parquet what for_each_parquet_row throws.
std::vector<TextDocument> read_documents(const std::filesystem::path& path);

// The same for contents that are in memory already; `name` is used for the errors and its ending for the kind of file.
std::vector<TextDocument> parse_documents(std::string_view contents, const std::filesystem::path& name);

// Whether the first object of such a file is a row of token ids; false for any file that cannot be read.
bool holds_rows(const std::filesystem::path& path);
// The row as a line of a .jsonl file, with its end of line.
std::string row_line(const TextDocument& row);

}  // namespace bw::io
