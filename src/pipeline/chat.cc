#include "pipeline/chat.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bitwright/error.h"

namespace bw::pipeline {
namespace {

constexpr size_t kMostContext = size_t{1} << 20;

const ChatOptions& checked(const ChatOptions& options) {
  check_writing(options);
  if (options.context > kMostContext) {
    throw Error(ErrorCode::kUsage, fmt::format("--context {}: at most {} are possible", options.context, kMostContext));
  }
  return options;
}

tokenizer::ChatTemplate require_template(const std::filesystem::path& model) {
  if (auto chat = tokenizer::ChatTemplate::load(model)) return std::move(*chat);
  throw Error(ErrorCode::kModel, fmt::format("{}: the model has no chat template", model.string()),
              "it is no model for chats: let it write on with generate --prompt");
}

size_t context_of(const ChatOptions& options, const model::ModelDir& dir) {
  if (options.context != 0) return options.context;
  const size_t made_for = dir.config().max_position;
  return made_for == 0 ? kDefaultContext : std::min(made_for, kDefaultContext);
}

io::OrderedJson message_of(std::string_view role, std::string_view content) {
  return {{"role", role}, {"content", content}};
}

}  // namespace

Conversation::Conversation(const ChatOptions& options)
    : options_(checked(options)),
      run_(options_.engine),
      dir_(options_.model, true),
      tokenizer_(tokenizer::Tokenizer::load(dir_.path())),
      template_(require_template(options_.model)),
      context_(context_of(options_, dir_)),
      writer_(run_, dir_, context_),
      rng_(options_.seed) {
  warn_beyond_positions(run_, dir_, context_);
  reset();
}

void Conversation::reset() {
  rng_ = Rng(options_.seed);
  messages_ = io::OrderedJson::array();
  if (!options_.system.empty()) messages_.push_back(message_of("system", options_.system));
}

std::vector<uint32_t> Conversation::prompt_ids(const io::OrderedJson& messages) const {
  std::vector<uint32_t> ids = tokenizer_.encode(template_.render(messages, true));
  check_ids(ids, dir_);
  if (ids.empty()) throw Error(ErrorCode::kModel, "the chat template makes nothing of the conversation");
  if (ids.size() < context_) return ids;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("the conversation has {} tokens, and there is room for {} with the answer", ids.size(), context_),
      "begin anew with /reset, or give more --context");
}

ChatAnswer Conversation::say(std::string_view message) {
  io::OrderedJson messages = messages_;
  messages.push_back(message_of("user", message));
  std::vector<uint32_t> ids = prompt_ids(messages);
  ChatAnswer answer;
  answer.prompt_tokens = ids.size();
  answer.reused_tokens = writer_.known(ids);
  Continuation text(writer_, tokenizer_, options_, std::move(ids), options_.on_text);
  while (!text.done()) {
    if (run_.reporter.wants_end()) {
      text.end(Ending::kInterrupted);
    } else {
      text.add(text.draw(text.logits(), rng_.next_double()));
    }
  }
  messages.push_back(message_of("assistant", text.text()));
  messages_ = std::move(messages);
  answer.text = text.text();
  answer.tokens = text.tokens();
  answer.ending = text.ending();
  run_.device->wait_all("the end of an answer");
  write_trace(run_, options_.engine);
  return answer;
}

}  // namespace bw::pipeline
