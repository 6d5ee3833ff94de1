// Text as it grows, token by token, against the text of all tokens together.
#include "tokenizer/text_stream.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "io/json.h"

namespace bw::tokenizer {
namespace {

std::string streamed(const Tokenizer& tokenizer, std::span<const uint32_t> ids) {
  TextStream stream(tokenizer);
  std::string text;
  for (const uint32_t id : ids) {
    const std::string piece = stream.push(id);
    EXPECT_FALSE(find_invalid_utf8(piece));
    text += piece;
  }
  text += stream.finish();
  EXPECT_EQ(stream.finish(), "");
  return text;
}

class Streams : public testing::TestWithParam<const char*> {
 protected:
  Streams()
      : file_(io::load_json(std::filesystem::path(BW_FIXTURES) / "tokenizer" / (std::string(GetParam()) + ".json"))) {}

  // Calls use(tokenizer) for every variant of the fixture.
  template <typename Use>
  void for_each_variant(const Use& use) const {
    for (const io::Json& variant : file_.at("variants")) {
      SCOPED_TRACE(variant.at("name").get<std::string>());
      io::Json json = file_.at("tokenizer");
      json.update(variant.at("override"));
      use(Tokenizer::from_json(json.dump(), "test"), variant);
    }
  }

 private:
  io::Json file_;
};

TEST_P(Streams, TextsOfTheFixtureComeWhole) {
  for_each_variant([](const Tokenizer& tokenizer, const io::Json& variant) {
    for (const io::Json& item : variant.at("cases")) {
      const auto ids = item.at(2).get<std::vector<uint32_t>>();
      EXPECT_EQ(streamed(tokenizer, ids), tokenizer.decode(ids)) << item.at(0).dump();
    }
  });
}

TEST_P(Streams, AnyIdsGiveTheSameTextAsAllAtOnce) {
  Rng rng(3);
  for_each_variant([&](const Tokenizer& tokenizer, const io::Json&) {
    for (size_t length = 0; length < 200; length += 3) {
      std::vector<uint32_t> ids(length);
      for (uint32_t& id : ids) id = rng.below(static_cast<uint32_t>(tokenizer.vocab_size() + 3));
      ASSERT_EQ(streamed(tokenizer, ids), tokenizer.decode(ids)) << io::Json(ids).dump();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Streams,
                         testing::Values("smollm_like", "qwen_like", "llama3_like", "gemma_like", "llama2_like",
                                         "unigram_like", "unigram_bytes", "suffix_like", "prefix_like", "components"),
                         [](const auto& test) { return std::string(test.param); });

class ByteTokens : public testing::Test {
 protected:
  Tokenizer tokenizer_ = Tokenizer::load(std::filesystem::path(BW_FIXTURES) / "models" / "llama");
};

TEST_F(ByteTokens, ACharacterComesWithItsLastByte) {
  TextStream stream(tokenizer_);
  const auto ids = tokenizer_.encode("a\u00e9\U0001F600");
  ASSERT_EQ(ids.size(), 7u);
  const std::string want[] = {"a", "", "\u00e9", "", "", "", "\U0001F600"};
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(stream.push(ids[i]), want[i]) << i;
  EXPECT_EQ(stream.finish(), "");
}

TEST_F(ByteTokens, WhatStaysIncompleteComesAtTheEnd) {
  TextStream stream(tokenizer_);
  auto ids = tokenizer_.encode("x\u00e9");
  ids.pop_back();
  EXPECT_EQ(stream.push(ids[0]), "x");
  EXPECT_EQ(stream.push(ids[1]), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

}  // namespace
}  // namespace bw::tokenizer
