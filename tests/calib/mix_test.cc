// Rows of several sources, and rows that were kept.
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

class Mixes : public testing::Test {
 protected:
  // `n` times a word, each time with its number.
  fs::path text(const std::string& name, const std::string& word, int n) {
    std::string words;
    for (int i = 0; i < n; ++i) words += word + " " + std::to_string(i) + ". ";
    io::write_file(dir_ / name, words);
    return dir_ / name;
  }
  Mix mix(const std::vector<fs::path>& files, const std::vector<double>& weights, size_t count, size_t length) {
    return mix_sources(tokenizer_, nullptr, find_sources(files, weights), count, length);
  }
  fs::path keep(const Mix& m, const std::string& name = "rows.jsonl") {
    io::write_file(dir_ / name, rows_file(m, tokenizer_));
    return dir_ / name;
  }
  static std::vector<size_t> rows_of(const Mix& m) {
    std::vector<size_t> rows;
    for (const CalibrationSource& s : m.sources) rows.push_back(s.rows);
    return rows;
  }
  static void expect_sums(const Mix& m) {
    size_t rows = 0, used = 0;
    double share = 0;
    for (const CalibrationSource& s : m.sources) {
      rows += s.rows;
      used += s.used_tokens;
      share += s.share;
    }
    EXPECT_EQ(rows, m.rows.count());
    EXPECT_EQ(used, m.rows.ids.size());
    EXPECT_NEAR(share, 1, 1e-12);
    EXPECT_EQ(m.row_sources.size(), m.rows.count());
  }

  test::TempDir dir_;
  tokenizer::Tokenizer tokenizer_ = tokenizer::Tokenizer::load(fs::path(BW_FIXTURES) / "models" / "llama");
  fs::path a_ = text("a.txt", "apple", 400), b_ = text("b.txt", "boat", 100);
};

TEST_F(Mixes, WithoutWeightsSourcesAreOneText) {
  const Mix m = mix({a_, b_}, {}, 9, 20);
  expect_sums(m);
  std::vector<uint32_t> stream = tokenize_long(tokenizer_, io::read_file(a_), false);
  EXPECT_EQ(m.sources[0].tokens, stream.size());
  const auto more = tokenize_long(tokenizer_, io::read_file(b_), false);
  stream.insert(stream.end(), more.begin(), more.end());
  EXPECT_EQ(m.rows.ids, rows_from_stream(stream, tokenizer_.prefix_ids(), 9, 20, "x").ids);
  EXPECT_EQ(m.rows.source, "a.txt, b.txt");
  EXPECT_GT(m.sources[0].rows, m.sources[1].rows);
  EXPECT_EQ(m.row_sources.front(), "a.txt");
  EXPECT_EQ(m.row_sources.back(), "b.txt");
}

TEST_F(Mixes, ARowCanLieInSeveralSources) {
  const fs::path tiny = text("tiny.txt", "x", 1);
  const size_t tokens = tokenize_long(tokenizer_, io::read_file(tiny), false).size();
  const Mix m = mix({tiny, tiny, tiny}, {}, 1, 1 + 3 * tokens);
  expect_sums(m);
  EXPECT_EQ(rows_of(m), (std::vector<size_t>{1, 0, 0}));
  EXPECT_EQ(m.sources[0].used_tokens, 1 + tokens);  // with BOS
  EXPECT_EQ(m.sources[2].used_tokens, tokens);
}

TEST_F(Mixes, WeightsAreSharesOfTheRows) {
  EXPECT_EQ(rows_of(mix({a_, b_}, {1, 1}, 8, 20)), (std::vector<size_t>{4, 4}));
  EXPECT_EQ(rows_of(mix({a_, b_}, {3, 1}, 8, 20)), (std::vector<size_t>{6, 2}));
  EXPECT_EQ(rows_of(mix({a_, b_}, {0.5, 0.25}, 9, 20)), (std::vector<size_t>{6, 3}));
  EXPECT_EQ(rows_of(mix({a_, b_, a_}, {1, 1, 1}, 8, 20)), (std::vector<size_t>{3, 3, 2}));  // they add up
  EXPECT_EQ(rows_of(mix({a_, b_}, {1e-300, 1e-300}, 2, 20)), (std::vector<size_t>{1, 1}));
  expect_error([&] { mix({a_, b_}, {1000, 1}, 8, 20); }, ErrorCode::kUsage, {"b.txt", "8 rows", "gives it none"});
  // Each source's own rows are those that it would give alone.
  const Mix m = mix({a_, b_}, {3, 1}, 8, 20), b = mix({b_}, {}, 2, 20);
  expect_sums(m);
  EXPECT_TRUE(std::equal(b.rows.ids.begin(), b.rows.ids.end(), m.rows.row(6).begin()));
  expect_error(
      [&] {
        mix({a_, text("short.txt", "s", 2)}, {1, 1}, 8, 20);
      },
      ErrorCode::kUsage, {"short.txt", "4 rows of 20"});
}

TEST_F(Mixes, RowsThatWereKeptAreTheSameRows) {
  for (const Mix& m : {mix({a_, b_}, {}, 9, 20), mix({a_, b_}, {2, 1}, 9, 20)}) {
    const fs::path kept = keep(m);
    const Mix again = mix({kept}, {}, 9, 20);
    EXPECT_EQ(again.rows.ids, m.rows.ids);
    EXPECT_EQ(again.row_sources, m.row_sources);
    EXPECT_EQ(rows_file(again, tokenizer_), io::read_file(kept));
    expect_sums(again);
  }
}

TEST_F(Mixes, RowsCutThroughCharactersAreTheSameRowsToo) {
  std::string odd;
  for (int i = 0; i < 300; ++i) odd += i % 3 ? "\U0001F600" : "\u6f22 ";
  io::write_file(dir_ / "odd.txt", odd);
  const Mix m = mix({dir_ / "odd.txt"}, {}, 7, 5);
  EXPECT_EQ(mix({keep(m)}, {}, 7, 5).rows.ids, m.rows.ids);
}

TEST_F(Mixes, OfRowsThatWereKeptSomeCanBeTaken) {
  const Mix m = mix({a_}, {}, 9, 20);
  const fs::path kept = keep(m);
  EXPECT_EQ(mix({kept}, {}, 3, 20).rows.ids, some_of(m.rows, 3).ids);
  const Mix both = mix({kept, b_}, {1, 2}, 9, 20);
  expect_sums(both);
  EXPECT_EQ(rows_of(both), (std::vector<size_t>{3, 6}));
  const std::vector<std::string> wrong = {"rows.jsonl", "it holds 9 rows of 20", "--calib-rows of at most 9",
                                          "--calib-length 20"};
  expect_error([&] { mix({kept}, {}, 10, 20); }, ErrorCode::kUsage, {wrong[0], wrong[1], wrong[2], wrong[3]});
  expect_error([&] { mix({kept}, {}, 9, 21); }, ErrorCode::kUsage, {wrong[0], wrong[1], wrong[2], wrong[3]});
}

TEST_F(Mixes, RowsAndTextAreNotOneText) {
  const fs::path kept = keep(mix({a_}, {}, 9, 20));
  expect_error([&] { mix({kept, b_}, {}, 9, 20); }, ErrorCode::kUsage, {"b.txt", "cannot be one text", "weights"});
  expect_error([&] { mix({b_, kept}, {}, 9, 20); }, ErrorCode::kUsage, {"rows.jsonl, line 1", "cannot be one text"});
}

TEST_F(Mixes, RowsOfAnotherTokenizerAreRefused) {
  const auto refuse = [&](const std::string& line, std::initializer_list<std::string_view> words) {
    io::write_file(dir_ / "rows.jsonl", line);
    expect_error([&] { mix({dir_ / "rows.jsonl"}, {}, 1, 2); }, ErrorCode::kModel, words);
  };
  refuse(R"({"token_ids": [1, 2], "text": "words that these ids are not"})", {"rows.jsonl, line 1", "do not read as"});
  refuse(R"({"token_ids": [1, 4000000000]})", {"rows.jsonl, line 1", "no token 4000000000"});
  refuse("{\"token_ids\": [1, 2]}\n{\"token_ids\": [1, 2, 3]}", {"line 2", "3 tokens among rows of 2"});
}

TEST_F(Mixes, SelfWrittenRowsAreASourceOfTheirOwn) {
  Rows rows;
  rows.length = 4;
  rows.ids = {1, 2, 3, 4, 5, 6, 7, 8};
  rows.source = "self-generated";
  const Mix m = mix_of(rows, {});
  expect_sums(m);
  EXPECT_EQ(mix({keep(m)}, {}, 2, 4).rows.ids, rows.ids);
}

}  // namespace
}  // namespace bw::calib
