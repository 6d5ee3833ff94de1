// Ids and decodings of the `tokenizers` library (tools/make_tokenizer_fixtures.py), and damaged tokenizer files.
#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bitwright/error.h"
#include "io/json.h"

namespace bw::tokenizer {
namespace {

using io::Json;

std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(BW_FIXTURES) / "tokenizer" / (name + ".json");
}

Tokenizer make(const Json& json) { return Tokenizer::from_json(json.dump(), "test.json"); }

// {"a": 0, "b": 1, ...} with "ab" and "abc" merged.
Json tiny() {
  return Json::parse(R"({
    "added_tokens": [{"id": 5, "content": "<s>", "special": true}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, "merges": ["a b", ["ab", "c"]]}})");
}

std::string error_of(const std::string& json) {
  try {
    Tokenizer::from_json(json, "test.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kModel);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    EXPECT_TRUE(std::string(error.what()).starts_with("test.json: ")) << error.what();
    return error.what();
  }
  return "";
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, SameIdsAndDecodings) {
  const Json file = io::load_json(fixture(GetParam()));
  size_t n_cases = 0;
  for (const Json& variant : file.at("variants")) {
    SCOPED_TRACE(variant.at("name").get<std::string>());
    Json json = file.at("tokenizer");
    json.update(variant.at("override"));
    const Tokenizer tokenizer = make(json);
    for (const Json& item : variant.at("cases")) {
      const auto text = item.at(0).get<std::string>();
      SCOPED_TRACE(item.at(0).dump());
      EXPECT_EQ(tokenizer.encode(text), item.at(1).get<std::vector<uint32_t>>());
      const auto special = item.at(2).get<std::vector<uint32_t>>();
      EXPECT_EQ(tokenizer.encode(text, {.add_special_tokens = true, .parse_special_tokens = true}), special);
      EXPECT_EQ(tokenizer.decode(special, false), item.at(3).get<std::string>());
      EXPECT_EQ(tokenizer.decode(special, true), item.at(4).get<std::string>());
      ++n_cases;
    }
  }
  EXPECT_GT(n_cases, 50u);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Golden,
                         testing::Values("smollm_like", "qwen_like", "llama3_like", "gemma_like", "llama2_like",
                                         "unigram_like", "unigram_bytes", "suffix_like", "prefix_like", "components"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Tokenizer, TokensAndIds) {
  const Tokenizer tokenizer = make(tiny());
  EXPECT_EQ(tokenizer.vocab_size(), 6u);
  EXPECT_EQ(tokenizer.token_to_id("abc"), 4u);
  EXPECT_EQ(tokenizer.token_to_id("<s>"), 5u);
  EXPECT_EQ(tokenizer.token_to_id("x"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(3), "ab");
  EXPECT_EQ(tokenizer.id_to_token(6), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(0xFFFFFFFF), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(5));
  EXPECT_FALSE(tokenizer.is_special(4));
  EXPECT_TRUE(tokenizer.prefix_ids().empty());
  EXPECT_EQ(tokenizer.decode(std::vector<uint32_t>{4, 999, 0}), "abc a");
  EXPECT_EQ(tokenizer.decode({}), "");
}

TEST(Tokenizer, SpecialTokensAsText) {
  Json json = tiny();
  json["model"]["vocab"].update({{"<", 5}, {"s", 6}, {">", 7}});
  json["added_tokens"][0]["id"] = 8;
  json["added_tokens"].push_back({{"id", 9}, {"content", "ca"}, {"special", false}});
  const Tokenizer tokenizer = make(json);
  EXPECT_EQ(tokenizer.encode("ab<s>ca"), (std::vector<uint32_t>{3, 8, 9}));
  EXPECT_EQ(tokenizer.encode("ab<s>ca", {.add_special_tokens = false, .parse_special_tokens = false}),
            (std::vector<uint32_t>{3, 5, 6, 7, 9}));
}

TEST(Tokenizer, PrefixIds) {
  const Json file = io::load_json(fixture("llama2_like"));
  EXPECT_EQ(make(file.at("tokenizer")).prefix_ids(), std::vector<uint32_t>{0});
}

TEST(Tokenizer, InvalidUtf8IsReplaced) {
  const Tokenizer tokenizer = make(io::load_json(fixture("gemma_like")).at("tokenizer"));
  EXPECT_EQ(tokenizer.encode("the\xFF\xE4\xB8 fox\xC3"), tokenizer.encode("the\uFFFD\uFFFD fox\uFFFD"));
}

TEST(Tokenizer, ByteOrderMarkOfTheFileIsSkipped) {
  EXPECT_EQ(Tokenizer::from_json("\xEF\xBB\xBF" + tiny().dump(), "x").vocab_size(), 6u);
}

// Random bytes, spaces and merges: cutting words where no merge reaches across must not change ids. The reference here
// is a plain quadratic merge of the whole word.
TEST(Tokenizer, WholeTextEqualsPlainMerging) {
  const std::string letters = "abcd";
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Json vocab = Json::object();
    std::vector<std::string> tokens;
    const auto add = [&](const std::string& token) {
      if (!vocab.contains(token)) vocab[token] = tokens.size(), tokens.push_back(token);
    };
    for (const char c : letters.substr(0, 3)) add(std::string(1, c));  // 'd' is unknown and vanishes
    Json merges = Json::array();
    for (int i = 0; i < 12; ++i) {
      const std::string left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
      const Json merge = {left, right};
      if (left.size() + right.size() > 8 || std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
      add(left + right);
      merges.push_back(merge);
    }
    std::string text;
    for (int i = 0; i < 300; ++i) text += letters[random() % (round % 2 == 0 ? 3 : 4)];
    std::vector<std::string> parts;
    for (const char c : text) {
      if (c != 'd') parts.emplace_back(1, c);
    }
    for (;;) {
      size_t best = merges.size(), at = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const Json pair = {parts[i], parts[i + 1]};
        const auto rank = static_cast<size_t>(std::find(merges.begin(), merges.end(), pair) - merges.begin());
        if (rank < best) best = rank, at = i;
      }
      if (best == merges.size()) break;
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
    std::vector<uint32_t> expected;
    for (const std::string& part : parts) expected.push_back(vocab[part]);
    EXPECT_EQ(make({{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}}).encode(text), expected)
        << text;
  }
}

TEST(Tokenizer, LongInputsTakeLinearTime) {
  const auto begin = std::chrono::steady_clock::now();
  std::string marks = "a";
  for (int i = 0; i < 100000; ++i) marks += i % 2 ? "\u0301" : "\u0323";
  std::string cjk;
  for (int i = 0; i < 200000; ++i) cjk += i % 3 ? "中" : "文";
  for (const char* name : {"smollm_like", "qwen_like", "gemma_like", "unigram_bytes"}) {
    const Tokenizer tokenizer = make(io::load_json(fixture(name)).at("tokenizer"));
    for (const std::string& text :
         {std::string(500000, 'a'), std::string(500000, ' '), std::string(500000, '\n'), marks, cjk}) {
      EXPECT_GT(tokenizer.encode(text).size(), 0u);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));  // quadratic work would take hours
}

TEST(Tokenizer, ThreadsShareIt) {
  const Tokenizer tokenizer = make(io::load_json(fixture("gemma_like")).at("tokenizer"));
  const std::string text = "The quick brown fox jumps over the lazy dog, 中文 and the rest. ";
  const std::vector<uint32_t> expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) EXPECT_EQ(tokenizer.encode(text), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TokenizerErrors, DamagedJson) {
  const std::string good = tiny().dump();
  for (size_t n = 0; n < good.size(); ++n) EXPECT_NE(error_of(good.substr(0, n)), "") << n;
  EXPECT_NE(error_of("[]"), "");
  EXPECT_NE(error_of("{}"), "");
  EXPECT_NE(error_of(std::string(100000, '[')), "");
  EXPECT_NE(error_of(R"({"a":)" + std::string(100000, '[')), "");
  EXPECT_NE(error_of(R"({"a": 1, "a": 2})").find("twice"), std::string::npos);
}

// Every change of one value of the file is an error or a tokenizer that works; none crashes.
TEST(TokenizerErrors, ReplacedValues) {
  const Json values = {
      nullptr, true, -1, 3, 1e300, 4294967296u, "", "x", Json::array(), Json::object(), {{"type", "Sequence"}}};
  for (const char* name : {"llama2_like", "qwen_like", "unigram_bytes"}) {
    Json base = io::load_json(fixture(name)).at("tokenizer");
    const bool unigram = base["model"]["type"] == "Unigram";
    Json small = {{"type", base["model"]["type"]}, {"unk_id", 0}};
    small["vocab"] =
        unigram ? Json::parse(R"([["<unk>", 0], ["a", -1.5]])") : Json::parse(R"({"<unk>": 0, "a": 1, "aa": 2})");
    if (!unigram) small["merges"] = Json::parse(R"([["a", "a"], "a aa"])"), small["vocab"]["aaa"] = 3;
    base["model"] = small;
    const Json flat = base.flatten();
    for (const auto& [path, old] : flat.items()) {
      for (Json::json_pointer at(path); !at.empty(); at = at.parent_pointer()) {
        for (const Json& value : values) {
          Json json = base;
          json[at] = value;
          try {
            make(json).encode("a b<unk>aaa");
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::kModel);
          }
        }
      }
    }
  }
}

TEST(TokenizerErrors, Model) {
  const auto error_with = [](const char* path, const Json& value) {
    Json json = tiny();
    json[Json::json_pointer(path)] = value;
    return error_of(json.dump());
  };
  EXPECT_NE(error_with("/model/merges/0", "a x").find("\"x\""), std::string::npos);
  EXPECT_NE(error_with("/model/merges/0", "b a").find("\"ba\""), std::string::npos);  // the merged token is missing
  EXPECT_NE(error_with("/model/merges/0", "a b c"), "");
  EXPECT_NE(error_with("/model/merges/1", {"a"}), "");
  EXPECT_NE(error_with("/model/merges/1", {"a", "b", "c"}), "");
  EXPECT_NE(error_with("/model/vocab/a", 1u << 30), "");
  EXPECT_NE(error_with("/model/vocab/a", 1u << 21), "");
  EXPECT_EQ(error_with("/model/vocab/a", (1u << 21) - 1), "");
  EXPECT_NE(error_with("/model/vocab/a", 4), "");  // the id of another token
  EXPECT_NE(error_with("/model/vocab/a", -1), "");
  EXPECT_NE(error_with("/model/vocab/a", 1.5), "");
  EXPECT_NE(error_with("/model/dropout", 0.1).find("dropout"), std::string::npos);
  EXPECT_EQ(error_with("/model/dropout", 0.0), "");
  EXPECT_NE(error_with("/model/type", "WordPiece").find("WordPiece"), std::string::npos);
  EXPECT_NE(error_with("/normalizer", {{"type", "Precompiled"}}).find("Precompiled"), std::string::npos);
  EXPECT_NE(error_with("/pre_tokenizer", {{"type", "Foo"}}).find("Foo"), std::string::npos);
  EXPECT_NE(error_with("/decoder", {{"type", "CTC"}}).find("CTC"), std::string::npos);
  EXPECT_NE(error_with("/post_processor", {{"type", "Foo"}}).find("Foo"), std::string::npos);
  EXPECT_NE(error_with("/added_tokens/0/id", 1u << 31), "");
  std::string twice = tiny().dump();
  twice.replace(twice.find(R"("a":0)"), 5, R"("a":0,"a":7)");
  EXPECT_NE(error_of(twice).find("twice"), std::string::npos);
}

TEST(Tokenizer, ScoresMayBeWholeNumbers) {
  Json json = {{"model", {{"type", "Unigram"}, {"unk_id", 0}}}};
  json["model"]["vocab"] = Json::parse(R"([["?", 0], ["a", -3], ["b", -3], ["ab", -7]])");
  EXPECT_EQ(make(json).encode("ab"), (std::vector<uint32_t>{1, 2}));
  json["model"]["vocab"][3][1] = -5;
  EXPECT_EQ(make(json).encode("ab"), std::vector<uint32_t>{3});
}

TEST(TokenizerErrors, NestedSequences) {
  Json nested = {{"type", "NFC"}};
  for (int i = 0; i < 100; ++i) nested = {{"type", "Sequence"}, {"normalizers", Json::array({nested})}};
  Json json = tiny();
  json["normalizer"] = nested;
  EXPECT_NE(error_of(json.dump()), "");
}

// Steps that lengthen a text multiply: 16^12 bytes out of one.
TEST(TokenizerErrors, TextsThatGrowWithoutEnd) {
  const auto sequence = [](const char* key, const Json& step, size_t n) {
    return Json{{"type", "Sequence"}, {key, std::vector<Json>(n, step)}};
  };
  const Json longer = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(16, 'a')}};
  Json json = tiny();
  json["normalizer"] = sequence("normalizers", longer, 2);
  EXPECT_EQ(make(json).encode("a").size(), 256u);
  json["normalizer"] = sequence("normalizers", longer, 12);
  EXPECT_THROW(make(json).encode("a"), Error);
  json["normalizer"] = sequence("normalizers", {{"type", "ByteLevel"}}, 40);
  EXPECT_THROW(make(json).encode("\u00e9"), Error);
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = sequence("pretokenizers", {{"type", "ByteLevel"}, {"use_regex", false}}, 40);
  EXPECT_THROW(make(json).encode("\u00e9"), Error);
  json["pre_tokenizer"] = nullptr;
  json["decoder"] = sequence("decoders", longer, 2);
  EXPECT_EQ(make(json).decode(std::vector<uint32_t>{0}), std::string(256, 'a'));
  json["decoder"] = sequence("decoders", longer, 12);
  EXPECT_THROW(make(json).decode(std::vector<uint32_t>{0}), Error);
  json["added_tokens"][0] = {{"id", 5}, {"content", "a"}, {"normalized", true}};
  json["normalizer"] = sequence("normalizers", longer, 12);
  EXPECT_NE(error_of(json.dump()).find("grows beyond"), std::string::npos);
}

TEST(TokenizerErrors, Directory) {
  const auto dir = std::filesystem::temp_directory_path() / ("bw_tokenizer_" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  const auto load_error = [&] {
    try {
      Tokenizer::load(dir);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(load_error().find("there is no tokenizer.json"), std::string::npos);
  std::ofstream(dir / "tokenizer.model") << "x";
  EXPECT_NE(load_error().find("save_pretrained"), std::string::npos);
  std::ofstream(dir / "tokenizer.json") << tiny().dump();
  EXPECT_EQ(Tokenizer::load(dir).vocab_size(), 6u);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace bw::tokenizer
