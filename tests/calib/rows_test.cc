// Rows of token ids from texts.
#include "calib/mix.h"

#include <numeric>

#include <gtest/gtest.h>

#include "io/file_write.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace bw::calib {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

constexpr uint32_t kBos = 286;  // of the tokenizer of the model fixtures

tokenizer::Tokenizer tiny_tokenizer() { return tokenizer::Tokenizer::load(fs::path(BW_FIXTURES) / "models" / "llama"); }

std::vector<uint32_t> count_up(size_t n) {
  std::vector<uint32_t> ids(n);
  std::iota(ids.begin(), ids.end(), 0u);
  return ids;
}

std::vector<uint32_t> firsts(const Rows& rows) {
  std::vector<uint32_t> ids;
  for (size_t r = 0; r < rows.count(); ++r) ids.push_back(rows.row(r)[0]);
  return ids;
}

TEST(RowsFromStream, StandAtEvenDistances) {
  const Rows rows = rows_from_stream(count_up(100), {}, 4, 10, "x");
  EXPECT_EQ(rows.count(), 4u);
  EXPECT_EQ(rows.source, "x");
  EXPECT_EQ(firsts(rows), (std::vector<uint32_t>{0, 30, 60, 90}));
  for (size_t r = 0; r < 4; ++r) EXPECT_EQ(rows.row(r)[9], rows.row(r)[0] + 9);
  EXPECT_EQ(firsts(rows_from_stream(count_up(100), {}, 1, 10, "x")), (std::vector<uint32_t>{0}));
}

TEST(RowsFromStream, AStreamThatJustFitsIsUsedUp) {
  const Rows rows = rows_from_stream(count_up(40), {}, 4, 10, "x");
  EXPECT_EQ(rows.ids, count_up(40));
}

TEST(RowsFromStream, EveryRowBeginsWithThePrefix) {
  const std::vector<uint32_t> prefix = {7, 8};
  const Rows rows = rows_from_stream(count_up(16), prefix, 2, 10, "x");
  ASSERT_EQ(rows.ids.size(), 20u);
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(rows.row(r)[0], 7u);
    EXPECT_EQ(rows.row(r)[1], 8u);
    EXPECT_EQ(rows.row(r)[2], 8 * r);
    EXPECT_EQ(rows.row(r)[9], 8 * r + 7);
  }
}

TEST(RowsFromStream, TooShortATextIsRefusedWithTheNumbers) {
  expect_error([] { rows_from_stream(count_up(39), {}, 4, 10, "book.txt"); }, ErrorCode::kUsage,
               {"book.txt", "4 rows of 10", "need 40", "found 39"});
  expect_error([] { rows_from_stream({}, {}, 1, 10, "book.txt"); }, ErrorCode::kUsage, {"found 0"});
  const std::vector<uint32_t> prefix = {7};
  expect_error([&] { rows_from_stream(count_up(9), prefix, 1, 2, "x"); }, ErrorCode::kUsage, {"1 row of 3"});
  expect_error([] { rows_from_stream(count_up(9), {}, 0, 2, "x"); }, ErrorCode::kUsage, {"0 rows"});
  expect_error([] { rows_from_stream(count_up(9), {}, SIZE_MAX, SIZE_MAX, "x"); }, ErrorCode::kUsage, {"found 9"});
}

TEST(SomeOf, TakesRowsAtEvenDistances) {
  Rows rows;
  rows.length = 2;
  rows.source = "text";
  for (uint32_t i = 0; i < 9; ++i) rows.ids.insert(rows.ids.end(), {10 * i, 10 * i + 1});
  EXPECT_EQ(some_of(rows, 3).ids, (std::vector<uint32_t>{10, 11, 40, 41, 70, 71}));
  EXPECT_EQ(some_of(rows, 1).ids, (std::vector<uint32_t>{40, 41}));
  EXPECT_EQ(some_of(rows, 3).source, "text");
  EXPECT_EQ(some_of(rows, 3).length, 2u);
  for (const size_t count : {9, 10, 1000}) EXPECT_EQ(some_of(rows, count).ids, rows.ids);
}

TEST(TokenizeLong, CutsAfter2To18Characters) {
  const auto tokenizer = tiny_tokenizer();
  // A word of two letters that is one token: cut in the middle, it becomes two.
  std::string word;
  for (char a = 'a'; a <= 'z' && word.empty(); ++a) {
    for (char b = 'a'; b <= 'z' && word.empty(); ++b) {
      if (tokenizer.encode(std::string{a, b}).size() == 1) word = {a, b};
    }
  }
  ASSERT_FALSE(word.empty());
  const auto text_of = [](size_t characters) {  // of 1 to 4 bytes each, none of them a letter
    const std::string_view kinds[] = {".", "\u00bf", "\u2026", "\U0001F600"};
    std::string text;
    for (size_t i = 0; i < characters; ++i) text += kinds[i % 4];
    return text;
  };
  constexpr size_t kPiece = size_t{1} << 18;
  for (const size_t before : {kPiece - 2, kPiece - 1, kPiece}) {
    const std::string text = text_of(before) + word;
    const auto ids = tokenize_long(tokenizer, text, true);
    EXPECT_EQ(tokenizer.decode(ids), text) << before;
    const std::string_view last = *tokenizer.id_to_token(ids.back()) == word ? "whole" : "cut";
    EXPECT_EQ(last, before == kPiece - 1 ? "cut" : "whole") << before;
  }
  EXPECT_TRUE(tokenize_long(tokenizer, "", true).empty());
}

class Files : public testing::Test {
 protected:
  Rows rows(const std::vector<fs::path>& files, size_t length, const tokenizer::ChatTemplate* chat = nullptr) {
    return mix_sources(tokenizer_, chat, find_sources(files, {}), 1, length).rows;
  }
  // The row without its BOS, as text.
  std::string text_of(const Rows& r) const { return tokenizer_.decode(std::span(r.ids).subspan(1), false); }
  size_t tokens(const std::string& text) const { return tokenizer_.encode(text).size(); }

  test::TempDir dir_;
  tokenizer::Tokenizer tokenizer_ = tiny_tokenizer();
};

TEST_F(Files, TextsFollowEachOther) {
  io::write_file(dir_ / "a.txt", "The first <s>text. ");
  io::write_file(dir_ / "b.jsonl", "{\"text\": \"Second.\"}\n\n{\"text\": \" Third.\"}\n");
  // A special token in plain text is text.
  const size_t n =
      tokenize_long(tokenizer_, "The first <s>text. ", false).size() + tokens("Second.") + tokens(" Third.");
  const Rows r = rows({dir_ / "a.txt", dir_ / "b.jsonl"}, n + 1);
  EXPECT_EQ(r.ids[0], kBos);
  EXPECT_EQ(std::count(r.ids.begin(), r.ids.end(), kBos), 1);
  EXPECT_EQ(text_of(r), "The first <s>text. Second. Third.");
  EXPECT_EQ(r.source, "a.txt, b.jsonl");
  expect_error([&] { rows({dir_ / "a.txt"}, 1000); }, ErrorCode::kUsage, {"a.txt", "999"});
}

TEST_F(Files, MessagesGoThroughTheTemplate) {
  io::write_file(dir_ / "chat.jsonl",
                 R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Oh"}]})");
  const auto chat =
      tokenizer::ChatTemplate::parse("{% for m in messages %}</s>{{ m.role }}:{{ m.content }}{% endfor %}", "test");
  const Rows r = rows({dir_ / "chat.jsonl"}, 1 + tokens("</s>user:Hi</s>assistant:Oh"), &chat);
  EXPECT_EQ(r.ids[1], 287u);  // a special token in what the template writes is one
  EXPECT_EQ(text_of(r), "</s>user:Hi</s>assistant:Oh");
  expect_error([&] { rows({dir_ / "chat.jsonl"}, 4); }, ErrorCode::kModel, {"chat.jsonl, line 1", "no chat template"});
}

TEST_F(Files, IdsBeyondTheModelAreNamed) {
  Rows r;
  r.length = 2;
  r.ids = {5, 287};
  r.source = "a.txt";
  EXPECT_NO_THROW(check_ids(r, tokenizer_, 288));
  expect_error([&] { check_ids(r, tokenizer_, 287); }, ErrorCode::kModel, {"a.txt", "287 ('</s>')", "287 embedding"});
}

}  // namespace
}  // namespace bw::calib
