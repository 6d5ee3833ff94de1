// A chat template, rendered with a small conversation.
#include "fuzz/target.h"
#include "tokenizer/chat_template.h"

using namespace bw;

namespace {

io::OrderedJson json(std::string_view text) { return io::parse_ordered_json(text, "conversation"); }

}  // namespace

BW_FUZZ_TARGET(chat_template, input) {
  static const io::OrderedJson conversation = json(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]},
    {"role": "assistant", "content": null, "reasoning": "easy",
     "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2.5}}}]},
    {"role": "tool", "content": "{\"sum\": 4}"},
    {"role": "assistant", "content": " <b>Four</b> \u00e9 "}])");
  static const io::OrderedJson variables = json(R"({"strftime_now": "2024-07-26", "enable_thinking": true,
    "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]})");
  const auto chat = tokenizer::ChatTemplate::parse(input, "input");
  chat.render(conversation, true, variables);
}
