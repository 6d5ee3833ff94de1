#include "io/json.h"

#include <gtest/gtest.h>

#include "io/file_write.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace bw::io {
namespace {

using test::expect_error;

TEST(Json, ReadsWhatTheStandardAllows) {
  const Json json = parse_json(R"( {"a": [1, -2, 3.5, true, null, "é\u00e9\n"], "b": {"c": {}}} )", "x.json");
  EXPECT_EQ(json["a"].size(), 6u);
  EXPECT_EQ(json["a"][1], -2);
  EXPECT_EQ(json["a"][5], "éé\n");
  EXPECT_TRUE(json["b"]["c"].is_object());
  EXPECT_EQ(parse_json("7", "x"), 7);
}

TEST(Json, SkipsAByteOrderMark) { EXPECT_EQ(parse_json("\xef\xbb\xbf{\"中\": \"文\"}", "x")["中"], "文"); }

TEST(Json, OrderedKeepsTheOrderOfKeys) {
  const OrderedJson json = parse_ordered_json(R"({"z": 1, "a": {"y": 2, "b": [{"q": 1}]}, "m": 3})", "x");
  EXPECT_EQ(json.dump(), R"({"z":1,"a":{"y":2,"b":[{"q":1}]},"m":3})");
}

TEST(Json, NamesTheFileAndTheByte) {
  expect_error([] { parse_json("{\"a\": nope}", "dir/config.json"); }, ErrorCode::kModel,
               {"dir/config.json: not valid JSON at byte 8: "});
}

TEST(Json, RefusesWhatIsNotJson) {
  using namespace std::string_literals;
  for (const std::string& bad : {""s,
                                 " "s,
                                 "{"s,
                                 "[1,]"s,
                                 "{\"a\":1,}"s,
                                 "NaN"s,
                                 "[Infinity]"s,
                                 "-Infinity"s,
                                 "1e999"s,
                                 "[1] x"s,
                                 "'a'"s,
                                 "\"\xff\""s,
                                 "\"\xed\xa0\x80\""s,
                                 "\"\\ud800\""s,
                                 "{}\0"s,
                                 "\"a\nb\""s,
                                 "01"s,
                                 "// x\n1"s,
                                 "\xef\xbb"s,
                                 "{1:2}"s}) {
    expect_error([&] { parse_json(bad, "x.json"); }, ErrorCode::kModel, {"x.json: not valid JSON at byte "});
    expect_error([&] { parse_ordered_json(bad, "x.json"); }, ErrorCode::kModel, {"x.json: not valid JSON at byte "});
  }
}

TEST(Json, RefusesDeepNesting) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_NO_THROW(parse_json(nested(512), "x"));
  expect_error([&] { parse_json(nested(513), "x"); }, ErrorCode::kModel, {"x: JSON nested deeper than 512"});
  expect_error([&] { parse_json(std::string(1000000, '['), "x"); }, ErrorCode::kModel, {"nested deeper"});
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  expect_error([&] { parse_ordered_json(objects, "x"); }, ErrorCode::kModel, {"nested deeper"});
}

TEST(Json, RefusesAKeyThatStandsTwice) {
  expect_error([] { parse_json(R"({"a": 1, "b": {"c": 1, "c": 2}})", "x"); }, ErrorCode::kModel,
               {"x: ", "'c'", "twice"});
  expect_error([] { parse_ordered_json(R"({"a\n": 1, "a\n": 2})", "x"); }, ErrorCode::kModel, {"'a?'", "twice"});
  EXPECT_NO_THROW(parse_json(R"([{"a": 1}, {"a": 1}])", "x"));
}

TEST(Json, OrderedObjectsAreLimited) {
  std::string text = "{\"k\":0";
  for (int i = 0; i < 20000; ++i) text += ",\"" + std::to_string(i) + "\":0";
  text += "}";
  EXPECT_EQ(parse_json(text, "x").size(), 20001u);
  expect_error([&] { parse_ordered_json(text, "x"); }, ErrorCode::kModel, {"x: ", "16384 keys"});
}

TEST(Json, ALongTokenDoesNotFillTheScreen) {
  try {
    parse_json("[" + std::string(100000, 'q') + "]", "x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_LT(std::string(error.what()).size(), 300u);
  }
}

TEST(Json, LoadsFiles) {
  const test::TempDir dir;
  write_file(dir / "a.json", "{\"b\": [1]}");
  EXPECT_EQ(load_json(dir / "a.json")["b"][0], 1);
  EXPECT_EQ(load_ordered_json(dir / "a.json")["b"][0], 1);
  expect_error([&] { load_json(dir / "c.json"); }, ErrorCode::kIo, {"c.json", "No such file"});
}

}  // namespace
}  // namespace bw::io
