#include "pipeline/generate.h"

#include <fmt/format.h>

#include "base/rng.h"
#include "bitwright/error.h"
#include "pipeline/writer.h"

namespace bw::pipeline {
namespace {

// What the model is asked to go on from: the prompt, or what the chat template makes of it.
std::string prompt_text(const GenerateOptions& options) {
  if (!options.chat) {
    if (options.system.empty()) return options.prompt;
    throw Error(ErrorCode::kUsage, "--system is given without --chat", "the message of a system is part of a chat");
  }
  const auto chat = tokenizer::ChatTemplate::load(options.model);
  if (!chat) {
    throw Error(ErrorCode::kModel, fmt::format("{}: the model has no chat template", options.model.string()),
                "leave --chat out");
  }
  io::OrderedJson messages = io::OrderedJson::array();
  if (!options.system.empty()) messages.push_back({{"role", "system"}, {"content", options.system}});
  messages.push_back({{"role", "user"}, {"content", options.prompt}});
  return chat->render(messages, true);
}

std::vector<uint32_t> prompt_ids(const tokenizer::Tokenizer& tokenizer, const std::string& text, bool chat) {
  std::vector<uint32_t> ids = tokenizer.encode(text);
  if (!chat) ids.insert(ids.begin(), tokenizer.prefix_ids().begin(), tokenizer.prefix_ids().end());
  if (ids.empty()) {
    throw Error(ErrorCode::kUsage, "the prompt is empty, and this model's tokenizer adds no token of its own",
                "give --prompt some text");
  }
  return ids;
}

// What one of two models needs to write.
struct Side {
  Side(const std::filesystem::path& model, const std::string& prompt, bool chat)
      : dir(model, true), tokenizer(tokenizer::Tokenizer::load(dir.path())), ids(prompt_ids(tokenizer, prompt, chat)) {
    check_ids(ids, dir);
  }
  const model::ModelDir dir;
  const tokenizer::Tokenizer tokenizer;
  const std::vector<uint32_t> ids;
};

std::string name_of(const tokenizer::Tokenizer& tokenizer, uint32_t id) {
  std::string text = tokenizer.decode(std::span(&id, 1));
  // Special tokens, and parts of characters, go by their name in the vocabulary.
  if (text.empty() || text.find("\xEF\xBF\xBD") != std::string::npos) {
    text = tokenizer.id_to_token(id).value_or(fmt::format("id {}", id));
  }
  return text;
}

void check_same_tokens(const Side& a, const Side& b) {
  if (a.ids == b.ids && a.tokenizer.vocab_size() == b.tokenizer.vocab_size()) return;
  throw Error(
      ErrorCode::kModel,
      fmt::format("{} and {} do not give the same tokens for the prompt", a.dir.path().string(), b.dir.path().string()),
      "compare a model with one that was made from it");
}

// Two texts that go on from the same tokens, with the same draws of chance.
class Race {
 public:
  Race(Run& run, Continuation& a, Continuation& b) : run_(run), text_{&a, &b} {}

  void go(const Side& a, const Side& b, uint64_t seed, GenerateAgainstResult& result) {
    Rng rng(seed);
    while (!text_[0]->done() || !text_[1]->done()) {
      run_.reporter.check_interrupted();
      const double u = rng.next_double();
      if (result.difference) {
        for (Continuation* text : text_) {
          if (!text->done()) text->add(text->draw(text->logits(), u));
        }
      } else {
        step_together(a, b, u, result);
      }
    }
    if (!result.difference) result.common = text_[0]->text();
    for (size_t i = 0; i < 2; ++i) {
      result.rest[i] = text_[i]->text().substr(result.common.size());
      result.tokens[i] = text_[i]->tokens();
      result.ending[i] = text_[i]->ending();
    }
  }

 private:
  void step_together(const Side& a, const Side& b, double u, GenerateAgainstResult& result) {
    const std::array logits = {text_[0]->logits(), text_[1]->logits()};
    const std::array ids = {text_[0]->draw(logits[0], u), text_[1]->draw(logits[1], u)};
    if (ids[0] != ids[1]) {
      TokenDifference& d = result.difference.emplace();
      d.position = text_[0]->tokens();
      d.token = {name_of(a.tokenizer, ids[0]), name_of(b.tokenizer, ids[1])};
      for (size_t i = 0; i < 2; ++i) {
        for (size_t j = 0; j < 2; ++j) {
          d.probability[i][j] = ids[j] < logits[i].size() ? nn::probability(logits[i], ids[j]) : 0;
        }
      }
      result.common = text_[0]->text();
    }
    for (size_t i = 0; i < 2; ++i) text_[i]->add(ids[i]);
  }

  Run& run_;
  std::array<Continuation*, 2> text_;
};

}  // namespace

GenerateResult generate_text(Run& run, const GenerateOptions& options) {
  check_writing(options);
  const Side side(options.model, prompt_text(options), options.chat);
  warn_beyond_positions(run, side.dir, side.ids.size() + options.max_tokens);
  Writer writer(run, side.dir, side.ids.size() + options.max_tokens);
  Rng rng(options.seed);
  Continuation text(writer, side.tokenizer, options, side.ids, options.on_text);
  while (!text.done()) {
    run.reporter.check_interrupted();
    text.add(text.draw(text.logits(), rng.next_double()));
  }
  return {text.text(), side.ids.size(), text.tokens(), text.ending(), {}};
}

GenerateAgainstResult generate_text_against(Run& run, const GenerateOptions& options,
                                            const std::filesystem::path& other) {
  check_writing(options);
  const std::string prompt = prompt_text(options);
  const Side a(options.model, prompt, options.chat), b(other, prompt, options.chat);
  check_same_tokens(a, b);
  const size_t length = a.ids.size() + options.max_tokens;
  warn_beyond_positions(run, a.dir, length);
  Writer first(run, a.dir, length), second(run, b.dir, length);
  GenerateAgainstResult result;
  result.prompt_tokens = a.ids.size();
  // The first text is the common one until they differ.
  Continuation text(first, a.tokenizer, options, a.ids, [&](std::string_view piece) {
    if (options.on_text && !result.difference) options.on_text(piece);
  });
  Continuation against(second, b.tokenizer, options, b.ids, nullptr);
  Race(run, text, against).go(a, b, options.seed, result);
  return result;
}

}  // namespace bw::pipeline
