#include "io/text_rows.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/ascii.h"
#include "base/utf8.h"
#include "bitwright/error.h"
#include "io/file_write.h"
#include "io/parquet.h"
#include "io/printable.h"

namespace bw::io {
namespace {

[[noreturn]] void fail(const std::string& name, const std::string& what, const std::string& hint = {}) {
  throw Error(ErrorCode::kModel, name + ": " + what, hint);
}

std::string ending_of(const std::filesystem::path& path) { return ascii_lower(path.extension().string()); }

// Refuses what is not text before its bytes are called invalid UTF-8.
void check_kind(std::string_view contents, const std::string& name) {
  static constexpr std::pair<std::string_view, std::string_view> kMagics[] = {
      {"\x1f\x8b", "gzip"},
      {"\x28\xb5\x2f\xfd", "zstd"},
      {"\xfd"
       "7zXZ",
       "xz"},
      {"BZh9", "bzip2"},
      {"PK\x03\x04", "zip"},
      {"%PDF-", "PDF"},
      {"ARROW1", "arrow"},
      {"GGUF", "GGUF"},
  };
  for (const auto& [magic, kind] : kMagics) {
    if (contents.starts_with(magic))
      fail(name, "this is a " + std::string(kind) + " file, not text", "unpack or convert it");
  }
  if (contents.starts_with("\xff\xfe") || contents.starts_with("\xfe\xff"))
    fail(name, "the text is UTF-16", "convert it to UTF-8");
}

void check_text(std::string_view contents, const std::string& name) {
  const size_t zero = contents.find('\0');
  const auto bad = find_invalid_utf8(contents.substr(0, zero));
  if (bad) fail(name, "not valid UTF-8 at byte " + std::to_string(*bad), "convert the text to UTF-8");
  if (zero != std::string_view::npos)
    fail(name, "a zero byte at byte " + std::to_string(zero) + ", so this is no text file");
}

// ShareGPT's {"from": ..., "value": ...} as {"role": ..., "content": ...}.
OrderedJson convert_turn(const OrderedJson& turn, const std::string& where) {
  static constexpr std::pair<std::string_view, std::string_view> kRoles[] = {
      {"human", "user"},          {"user", "user"},         {"gpt", "assistant"},
      {"assistant", "assistant"}, {"chatgpt", "assistant"}, {"bing", "assistant"},
      {"bard", "assistant"},      {"system", "system"},     {"tool", "tool"}};
  const bool complete = turn.is_object() && turn.contains("from") && turn["from"].is_string() && turn.contains("value");
  if (!complete) fail(where, "an entry of \"conversations\" has no \"from\" and \"value\"");
  const auto from = turn["from"].get<std::string>();
  const auto* role = std::find_if(std::begin(kRoles), std::end(kRoles), [&](const auto& r) { return r.first == from; });
  return {{"role", role == std::end(kRoles) ? from : std::string(role->second)}, {"content", turn["value"]}};
}

void check_messages(const OrderedJson& messages, const std::string& where, const char* key) {
  if (!messages.is_array() || messages.empty())
    fail(where, std::string("\"") + key + "\" is not a list with at least one message");
  for (const auto& message : messages) {
    if (!message.is_object() || !message.contains("role"))
      fail(where, std::string("a message of \"") + key + "\" has no \"role\"");
  }
}

std::string string_of(const OrderedJson& row, const std::string& where, const char* key) {
  const OrderedJson& value = row[key];
  if (!value.is_string()) fail(where, std::string("\"") + key + "\" is not a string but " + value.type_name());
  return value.get<std::string>();
}

std::vector<uint32_t> ids_of(const OrderedJson& list, const std::string& where) {
  if (!list.is_array() || list.empty()) fail(where, "\"token_ids\" is not a list of at least one token id");
  std::vector<uint32_t> ids;
  ids.reserve(list.size());
  for (const auto& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > UINT32_MAX)
      fail(where, "\"token_ids\" holds " + printable(id.dump(-1, ' ', true, OrderedJson::error_handler_t::replace)) +
                      ", which is no token id");
    ids.push_back(id.get<uint32_t>());
  }
  return ids;
}

TextDocument make_document(const OrderedJson& row, const std::string& where, size_t line) {
  TextDocument document;
  document.line = line;
  if (!row.is_object())
    fail(where, "expected an object with \"text\" or \"messages\", found " + std::string(row.type_name()));
  if (row.contains("text")) document.text = string_of(row, where, "text");
  if (row.contains("token_ids")) {
    document.ids = ids_of(row["token_ids"], where);
    if (row.contains("source")) document.source = string_of(row, where, "source");
    return document;
  }
  if (row.contains("text")) return document;
  document.is_chat = true;
  if (row.contains("messages")) {
    document.messages = row["messages"];
    check_messages(document.messages, where, "messages");
  } else if (row.contains("conversations") && row["conversations"].is_array()) {
    for (const auto& turn : row["conversations"]) {
      document.messages.push_back(turn.is_object() && turn.contains("role") ? turn : convert_turn(turn, where));
    }
    check_messages(document.messages, where, "conversations");
  } else {
    fail(where, "the object has neither \"text\" nor \"messages\"");
  }
  return document;
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos; }

std::vector<TextDocument> parse_lines(std::string_view contents, const std::string& name) {
  std::vector<TextDocument> documents;
  size_t number = 0;
  while (!contents.empty()) {
    ++number;
    const size_t end = std::min(contents.find('\n'), contents.size());
    const std::string_view line = contents.substr(0, end);
    contents.remove_prefix(std::min(end + 1, contents.size()));
    if (is_blank(line)) continue;
    const std::string where = name + ":" + std::to_string(number);
    documents.push_back(make_document(parse_ordered_json(line, where), where, number));
  }
  return documents;
}

std::vector<TextDocument> parse_list(std::string_view contents, const std::string& name) {
  std::vector<TextDocument> documents;
  const OrderedJson rows = parse_ordered_json(contents, name);
  for (size_t i = 0; i < rows.size(); ++i)
    documents.push_back(make_document(rows[i], name + " (entry " + std::to_string(i) + ")", 1));
  return documents;
}

// Rows without anything in the columns are skipped.
std::vector<TextDocument> parse_parquet(std::string_view contents, const std::string& name) {
  static constexpr std::string_view kColumns[] = {"text", "messages", "conversations", "token_ids", "source"};
  std::vector<TextDocument> documents;
  for_each_parquet_row(contents, name, kColumns, [&](const OrderedJson& row, size_t number) {
    if (row.empty() || (row.size() == 1 && row.contains("source"))) return;
    documents.push_back(make_document(row, name + " (row " + std::to_string(number) + ")", number));
  });
  if (documents.empty()) fail(name, "no row of the parquet file holds a text");
  return documents;
}

}  // namespace

std::vector<TextDocument> parse_documents(std::string_view contents, const std::filesystem::path& path) {
  const std::string name = path.string(), ending = ending_of(path);
  if (ending == ".parquet" || contents.starts_with("PAR1")) return parse_parquet(contents, name);
  check_kind(contents, name);
  check_text(contents, name);
  if (contents.starts_with("\xef\xbb\xbf")) contents.remove_prefix(3);
  if (is_blank(contents)) fail(name, "the file is empty");
  std::vector<TextDocument> documents;
  if (ending == ".json" && contents[contents.find_first_not_of(" \t\r\n\v\f")] == '[') {
    documents = parse_list(contents, name);
  } else if (ending == ".json" || ending == ".jsonl" || ending == ".ndjson") {
    documents = parse_lines(contents, name);
  } else {
    documents.emplace_back().text = contents;
  }
  if (documents.empty()) fail(name, "the list is empty");
  return documents;
}

bool holds_rows(const std::filesystem::path& path) {
  constexpr size_t kBeginning = size_t{16} << 20;
  const std::string ending = ending_of(path);
  if (ending != ".jsonl" && ending != ".ndjson") return false;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream file(path, std::ios::binary);
  std::string line;
  for (char c = 0; line.size() < kBeginning && file.get(c) && (c != '\n' || is_blank(line));) line += c;
  try {
    return !parse_documents(line, path).front().ids.empty();
  } catch (const Error&) {
    return false;
  }
}

std::string row_line(const TextDocument& row) {
  const OrderedJson json = {{"token_ids", row.ids}, {"text", row.text}, {"source", row.source}};
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::vector<TextDocument> read_documents(const std::filesystem::path& path) {
  return parse_documents(read_file(path, uint64_t{8} << 30), path);
}

}  // namespace bw::io
