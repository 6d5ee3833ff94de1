// Texts from parquet files. Most of it needs a build with Arrow, which ./test makes where it can.
#include "io/parquet.h"

#include <gtest/gtest.h>

#include "io/file_write.h"
#include "io/text_rows.h"
#include "support/errors.h"

namespace bw::io {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

const fs::path kFiles = fs::path(BW_FIXTURES) / "parquet";

std::vector<TextDocument> read(const std::string& name) { return read_documents(kFiles / (name + ".parquet")); }

void expect_refused(const std::string& name, std::initializer_list<std::string_view> words) {
  expect_error([&] { read(name); }, ErrorCode::kModel, words);
}

TEST(Parquet, WithoutArrowSaysHowToGoOn) {
  if (reads_parquet()) GTEST_SKIP() << "built with Arrow";
  expect_refused("text", {"text.parquet: ", "without Arrow", ".jsonl"});
}

class ParquetText : public testing::Test {
 protected:
  void SetUp() override {
    if (!reads_parquet()) GTEST_SKIP() << "built without Arrow";
  }
};

TEST_F(ParquetText, RowGroupsAndCompressionsGiveTheSameTexts) {
  for (const char* name : {"text", "zstd", "large"}) {
    const std::vector<TextDocument> documents = read(name);
    ASSERT_EQ(documents.size(), 9u) << name;  // one of ten is null
    EXPECT_EQ(documents[0].text, "Text 0: caf\xc3\xa9 ");
    EXPECT_EQ(documents[2].text, "Text 2: caf\xc3\xa9 long long ");
    EXPECT_EQ(documents[3].line, 5u);
    EXPECT_EQ(documents[8].text.substr(0, 7), "Text 9:");
  }
}

TEST_F(ParquetText, CategoriesAreStrings) {
  const std::vector<TextDocument> documents = read("categories");
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[0].text + documents[1].text + documents[2].text, "onetwoone");
}

TEST_F(ParquetText, ConversationsAreWhatTheyAreInJson) {
  const std::vector<TextDocument> messages = read("messages");
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_TRUE(messages[0].is_chat);
  EXPECT_EQ(messages[0].messages.dump(), R"([{"role":"user","content":"2 + 2?"},{"role":"assistant","content":"4"}])");
  EXPECT_EQ(messages[1].messages.size(), 1u);
  EXPECT_EQ(read("conversations").at(0).messages.dump(),
            R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}])");
}

TEST_F(ParquetText, FieldsBesideTheTextMayBeSmallNumbers) {
  EXPECT_EQ(read("small_numbers").at(0).messages.dump(), R"([{"role":"user","content":"Hi","turn":-1,"votes":255}])");
}

TEST_F(ParquetText, RowsOfTokenIdsAreRows) {
  const std::vector<TextDocument> rows = read("rows");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].ids, (std::vector<uint32_t>{4, 5, 6}));
  EXPECT_EQ(rows[1].source, "b");
}

TEST_F(ParquetText, TheContentsDecideNotTheName) {
  const std::string contents = read_file(kFiles / "text.parquet", 1 << 20);
  EXPECT_EQ(parse_documents(contents, "download").size(), 9u);
  expect_error([] { parse_documents("no parquet", "a.parquet"); }, ErrorCode::kModel, {"a.parquet: "});
}

TEST_F(ParquetText, WhatIsNoTextIsRefusedWithItsPlace) {
  expect_refused("other", {"other.parquet: ", "\"text\"", "\"content\", \"label\""});
  expect_refused("numbers", {"numbers.parquet (row 1)", "not a string"});
  expect_refused("binary", {"binary.parquet (row 1)", "binary"});
  expect_refused("nulls", {"nulls.parquet: ", "no row"});
  expect_refused("zero", {"zero.parquet (row 2)", "zero byte"});
}

// Every byte of the file changed, and every length: an error or a text, never a crash.
TEST_F(ParquetText, DamageIsAnErrorOrAnotherText) {
  const std::string whole = read_file(kFiles / "zstd.parquet", 1 << 20);
  size_t refused = 0;
  const auto parse = [&](const std::string& contents) {
    try {
      parse_documents(contents, "a.parquet");
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kModel) << e.what();
      EXPECT_TRUE(std::string(e.what()).starts_with("a.parquet")) << e.what();
      ++refused;
    }
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
    parse(damaged);
  }
  EXPECT_GT(refused, whole.size() / 4);
  for (size_t length = 0; length < whole.size(); length += 7) parse(whole.substr(0, length));
}

}  // namespace
}  // namespace bw::io
