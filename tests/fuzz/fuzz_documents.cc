// Files of calibration text. The first byte chooses among the kinds.
#include <array>

#include "base/utf8.h"
#include "fuzz/target.h"
#include "io/text_rows.h"

using namespace bw;

BW_FUZZ_TARGET(documents, input) {
  static constexpr std::array kNames = {"rows.jsonl", "rows.json", "rows.txt"};
  if (input.empty()) return;
  const char* name = kNames[static_cast<unsigned char>(input[0]) % kNames.size()];
  const std::vector<io::TextDocument> documents = io::parse_documents(input.substr(1), name);
  fuzz::require(!documents.empty(), "no document and no error");
  for (const io::TextDocument& d : documents) {
    fuzz::require(!find_invalid_utf8(d.text), "a text that is not UTF-8");
    fuzz::require(d.is_chat != d.messages.empty(), "a conversation without messages");
    fuzz::require(!d.is_chat || d.ids.empty(), "a conversation that is a row");
    if (d.ids.empty()) continue;
    const auto again = io::parse_documents(io::row_line(d), "rows.jsonl");
    fuzz::require(again.size() == 1 && again[0].ids == d.ids && again[0].source == d.source && again[0].text == d.text,
                  "a row that is not read as it was written");
  }
}
