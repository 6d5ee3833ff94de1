// Texts that models write: how they end, where those of two part, and conversations.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bitwright/bitwright.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

const fs::path kModels = fs::path(BW_FIXTURES) / "models";

class Writing : public testing::Test {
 protected:
  // A copy of a fixture with a chat template and no end token.
  fs::path copy(const std::string& name, const std::string& chat_template) {
    const fs::path to = dir_ / ("model-" + std::to_string(copies_++));
    fs::copy(kModels / name, to);
    std::ofstream(to / "chat_template.jinja") << chat_template;
    nlohmann::json config = nlohmann::json::parse(std::ifstream(to / "config.json"));
    config.erase("eos_token_id");
    config["max_position_embeddings"] = 512;
    std::ofstream(to / "config.json") << config;
    return to;
  }
  static GenerateOptions options(const fs::path& model, size_t tokens) {
    GenerateOptions g;
    g.model = model;
    g.prompt = "The keeper of the light";
    g.max_tokens = tokens;
    g.engine.arithmetic = Arithmetic::kF32;
    return g;
  }
  static ChatOptions chat_options(const fs::path& model, size_t tokens) {
    ChatOptions c;
    c.model = model;
    c.max_tokens = tokens;
    c.engine.arithmetic = Arithmetic::kF32;
    return c;
  }

  static constexpr const char* kTemplate =
      "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] ";
  test::TempDir dir_;
  int copies_ = 0;
};

TEST_F(Writing, AStopTextEndsATextBeforeIt) {
  GenerateOptions g = options(copy("llama", kTemplate), 40);
  g.temperature = 2;
  const GenerateResult whole = generate(g);
  EXPECT_EQ(whole.tokens, 40u);
  EXPECT_EQ(whole.ending, Ending::kMaxTokens);
  // Some characters of its middle.
  size_t at = whole.text.size() / 2;
  const auto is_inner = [&](size_t i) { return (static_cast<unsigned char>(whole.text[i]) & 0xC0) == 0x80; };
  while (is_inner(at)) ++at;
  size_t end = at + 3;
  while (end < whole.text.size() && is_inner(end)) ++end;
  g.stop = {"never to be found", whole.text.substr(at, end - at)};
  std::string streamed;
  g.on_text = [&](std::string_view piece) { streamed += piece; };
  const GenerateResult cut = generate(g);
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(g.stop[1])));
  EXPECT_EQ(streamed, cut.text);
  EXPECT_EQ(cut.ending, Ending::kStopText);
  EXPECT_LT(cut.tokens, 40u);
}

TEST_F(Writing, TextsOfTwoModelsAreTheirOwnAndPartAtTheDifference) {
  const fs::path a = copy("llama", kTemplate), b = copy("llama-bias", kTemplate);
  for (const float temperature : {0.0f, 1.5f}) {
    GenerateOptions g = options(a, 30);
    g.temperature = temperature;
    g.seed = 5;
    std::string streamed;
    g.on_text = [&](std::string_view piece) { streamed += piece; };
    const GenerateAgainstResult r = generate_against(g, b);
    ASSERT_TRUE(r.difference);
    EXPECT_EQ(streamed, r.common);
    g.on_text = nullptr;
    EXPECT_EQ(r.common + r.rest[0], generate(g).text);
    g.model = b;
    EXPECT_EQ(r.common + r.rest[1], generate(g).text);
    EXPECT_EQ(r.tokens[0], 30u);
    EXPECT_LT(r.difference->position, 30u);
    EXPECT_NE(r.rest[0], r.rest[1]);
    const auto& p = r.difference->probability;
    for (const auto& model : p) {
      for (const double x : model) EXPECT_TRUE(x > 0 && x < 1) << x;
      EXPECT_LT(model[0] + model[1], 1);
    }
    if (temperature > 0) continue;
    EXPECT_GE(p[0][0], p[0][1]);  // each writes what is most likely to it
    EXPECT_GE(p[1][1], p[1][0]);
  }
}

TEST_F(Writing, AModelAgreesWithItselfToTheEnd) {
  GenerateOptions g = options(copy("llama", kTemplate), 25);
  g.temperature = 1;
  const GenerateAgainstResult r = generate_against(g, g.model);
  EXPECT_FALSE(r.difference);
  EXPECT_EQ(r.common, generate(g).text);
  EXPECT_EQ(r.rest[0] + r.rest[1], "");
  EXPECT_EQ(r.tokens[1], 25u);
}

TEST_F(Writing, ModelsOfOtherTokensAreNotCompared) {
  const fs::path a = copy("llama", kTemplate), b = copy("llama", kTemplate);
  nlohmann::json tokenizer = nlohmann::json::parse(std::ifstream(b / "tokenizer.json"));
  tokenizer["post_processor"] = nullptr;
  std::ofstream(b / "tokenizer.json") << tokenizer;
  expect_error([&] { generate_against(options(a, 4), b); }, ErrorCode::kModel, {"do not give the same tokens"});
}

TEST_F(Writing, AConversationIsWhatOnePromptOfAllOfItGives) {
  const fs::path model = copy("llama", kTemplate), verbatim = copy("llama", "{{ messages[0].content }}");
  ChatOptions c = chat_options(model, 12);
  c.system = "Be brief.";
  Chat chat(c);
  const ChatAnswer first = chat.say("Who are you?");
  EXPECT_EQ(first.reused_tokens, 0u);
  EXPECT_EQ(first.ending, Ending::kMaxTokens);
  const ChatAnswer second = chat.say("And where?");
  GenerateOptions g = options(verbatim, 12);
  g.chat = true;
  g.prompt = "[system] Be brief.\n[user] Who are you?\n[assistant] ";
  EXPECT_EQ(generate(g).text, first.text);
  g.prompt += first.text + "\n[user] And where?\n[assistant] ";
  const GenerateResult whole = generate(g);
  EXPECT_EQ(whole.text, second.text);
  EXPECT_EQ(whole.prompt_tokens, second.prompt_tokens);
  // What was there before the first answer is known at least.
  EXPECT_GE(second.reused_tokens + 1, first.prompt_tokens);
  EXPECT_LT(second.reused_tokens, second.prompt_tokens);
}

TEST_F(Writing, AResetConversationBeginsAsTheFirstOne) {
  ChatOptions c = chat_options(copy("llama", kTemplate), 12);
  c.temperature = 1;
  Chat chat(c);
  const std::string first = chat.say("Who are you?").text;
  chat.say("And where?");
  chat.reset();
  const ChatAnswer again = chat.say("Who are you?");
  EXPECT_EQ(again.text, first);
  EXPECT_EQ(again.reused_tokens + 1, again.prompt_tokens);  // all but the last token, whose logits are needed
}

TEST_F(Writing, AnInterruptedAnswerStaysAsFarAsItGoes) {
  ChatOptions c = chat_options(copy("llama", kTemplate), 100);
  int left = 6;
  c.engine.interrupted = [&] { return --left < 0; };
  Chat chat(c);
  const ChatAnswer cut = chat.say("Who are you?");
  EXPECT_EQ(cut.ending, Ending::kInterrupted);
  EXPECT_EQ(cut.tokens, 6u);
  left = 1000;
  const ChatAnswer next = chat.say("Go on.");
  EXPECT_EQ(next.ending, Ending::kMaxTokens);
  EXPECT_GT(next.prompt_tokens, cut.prompt_tokens + 6);
}

TEST_F(Writing, AConversationHasNoMoreTokensThanItsContext) {
  ChatOptions c = chat_options(copy("llama", kTemplate), 100);
  c.context = 60;
  Chat chat(c);
  EXPECT_EQ(chat.context(), 60u);
  const ChatAnswer full = chat.say("Who are you?");
  EXPECT_EQ(full.ending, Ending::kContext);
  EXPECT_EQ(full.prompt_tokens + full.tokens, 60u);
  expect_error([&] { chat.say("And where?"); }, ErrorCode::kUsage, {"there is room for 60", "/reset", "--context"});
  chat.reset();
  EXPECT_EQ(chat.say("Who are you?").text, full.text);
}

TEST_F(Writing, WhatATemplateRefusesChangesNothing) {
  const fs::path model = copy("llama",
                              "{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('not that') }}"
                              "{% endif %}{{ m.content }}{% endfor %}");
  Chat chat(chat_options(model, 5)), other(chat_options(model, 5));
  chat.say("one");
  other.say("one");
  expect_error([&] { chat.say("no"); }, ErrorCode::kModel, {"not that"});
  EXPECT_EQ(chat.say("two").text, other.say("two").text);
}

TEST_F(Writing, OptionsOfAChatAreChecked) {
  expect_error([&] { Chat chat(chat_options(kModels / "llama", 5)); }, ErrorCode::kModel, {"no chat template"});
  const fs::path model = copy("llama", kTemplate);
  ChatOptions c = chat_options(model, 5);
  c.context = SIZE_MAX;
  expect_error([&] { Chat chat(c); }, ErrorCode::kUsage, {"--context"});
  c = chat_options(model, 5);
  c.min_p = 2;
  expect_error([&] { Chat chat(c); }, ErrorCode::kUsage, {"--min-p 2"});
}

}  // namespace
}  // namespace bw
