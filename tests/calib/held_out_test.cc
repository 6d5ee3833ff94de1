// Rows that are held out of calibration.
#include "calib/held_out.h"

#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "calib/mix.h"
#include "io/file_write.h"
#include "support/temp_dir.h"

namespace bw::calib {
namespace {

namespace fs = std::filesystem;

std::vector<uint32_t> count_up(size_t n) {
  std::vector<uint32_t> ids(n);
  std::iota(ids.begin(), ids.end(), 0u);
  return ids;
}

Rows held_out_of(size_t tokens, size_t count, size_t length, size_t wanted, size_t own_length,
                 const std::vector<uint32_t>& prefix = {}) {
  Rows rows;
  rows.length = own_length;
  hold_out(count_up(tokens), prefix, count, length, wanted, rows);
  return rows;
}

TEST(HeldOutShape, IsOfAbout2048TokensButNotOfMoreThanAnEighthOfTheRows) {
  const auto shape = [](size_t count, size_t length) {
    const HeldOutShape s = held_out_shape(count, length);
    return std::pair(s.count, s.length);
  };
  EXPECT_EQ(shape(36, 512), std::pair(size_t{4}, size_t{512}));
  EXPECT_EQ(shape(128, 2048), std::pair(size_t{4}, size_t{512}));
  EXPECT_EQ(shape(1000, 100), std::pair(size_t{21}, size_t{100}));
  EXPECT_EQ(shape(16, 512), std::pair(size_t{2}, size_t{512}));
  EXPECT_EQ(shape(4, 0).second, 0u);
  EXPECT_EQ(shape(1, 32), std::pair(size_t{1}, size_t{32}));
}

TEST(HoldOut, TakesWhatNoRowHas) {
  for (const size_t tokens : {size_t{100}, size_t{239}, size_t{240}, size_t{400}, size_t{1001}}) {
    for (const size_t count : {size_t{1}, size_t{2}, size_t{5}, size_t{9}}) {
      const Rows rows = rows_from_stream(count_up(tokens), {}, count, 10, "x");
      const Rows held_out = held_out_of(tokens, count, 10, 3, 8);
      const std::set<uint32_t> fitted(rows.ids.begin(), rows.ids.end());
      for (const uint32_t id : held_out.ids) {
        EXPECT_LT(id, tokens);
        EXPECT_FALSE(fitted.contains(id)) << tokens << " " << count;
      }
      const std::set<uint32_t> once(held_out.ids.begin(), held_out.ids.end());
      EXPECT_EQ(once.size(), held_out.ids.size());  // and none twice
    }
  }
}

TEST(HoldOut, ComesFromTheMiddleOfGapsAtEvenDistances) {
  // Rows at 0, 30, 60, 90, of 10 each: gaps of 20.
  const Rows rows = held_out_of(100, 4, 10, 3, 10);
  EXPECT_EQ(rows.count(), 3u);
  EXPECT_EQ(rows.row(0)[0], 15u);
  EXPECT_EQ(rows.row(1)[0], 45u);
  EXPECT_EQ(rows.row(2)[9], 84u);
  EXPECT_EQ(held_out_of(100, 4, 10, 1, 10).row(0)[0], 45u);
  EXPECT_EQ(held_out_of(100, 4, 10, 9, 10).count(), 3u);  // one of a gap
}

TEST(HoldOut, BeginsWithThePrefix) {
  const Rows rows = held_out_of(100, 4, 12, 2, 6, {7, 8});
  ASSERT_EQ(rows.count(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(rows.row(i)[0], 7u);
    EXPECT_EQ(rows.row(i)[1], 8u);
    EXPECT_EQ(rows.row(i)[5], rows.row(i)[2] + 3);
  }
}

TEST(HoldOut, GivesNothingWhereATextIsUsedUp) {
  EXPECT_TRUE(held_out_of(40, 4, 10, 3, 10).ids.empty());
  EXPECT_TRUE(held_out_of(66, 4, 10, 3, 10).ids.empty());  // gaps of 8
  EXPECT_EQ(held_out_of(66, 4, 10, 3, 8).count(), 3u);
  EXPECT_TRUE(held_out_of(10, 1, 10, 1, 10).ids.empty());
  EXPECT_EQ(held_out_of(20, 1, 10, 1, 10).row(0)[0], 10u);
}

TEST(SplitOff, TakesTheLastRowsAndCutsThem) {
  Rows rows;
  rows.length = 4;
  rows.source = "x";
  rows.ids = count_up(12);
  const Rows held_out = split_off(rows, {2, 3});
  EXPECT_EQ(rows.ids, count_up(4));
  EXPECT_EQ(held_out.ids, (std::vector<uint32_t>{4, 5, 6, 8, 9, 10}));
  EXPECT_EQ(held_out.length, 3u);
  EXPECT_EQ(held_out.source, "x");
}

TEST(MixHoldsOut, OfEachTextItsShareAndNothingOfRowsOfIds) {
  const test::TempDir dir;
  const auto tokenizer = tokenizer::Tokenizer::load(fs::path(BW_FIXTURES) / "models" / "llama");
  const auto write = [&](const char* name, const std::string& text) {
    io::write_file(dir / name, text);
    return dir / name;
  };
  const fs::path a = write("a.txt", std::string(4000, 'a')), b = write("b.txt", std::string(4000, 'b'));
  const auto mix = [&](const std::vector<fs::path>& files, const std::vector<double>& weights) {
    return mix_sources(tokenizer, nullptr, find_sources(files, weights), 32, 16);
  };
  const Mix m = mix({a, b}, {3, 1});
  ASSERT_EQ(m.held_out.count(), 4u);
  EXPECT_EQ(m.held_out.length, 16u);
  const auto letter = [&](size_t row) { return tokenizer.decode(m.held_out.row(row), true).back(); };
  EXPECT_EQ((std::string{letter(0), letter(1), letter(2), letter(3)}), "aaab");
  const fs::path rows = write("rows.jsonl", rows_file(m, tokenizer));
  EXPECT_TRUE(mix({rows}, {}).held_out.ids.empty());
}

}  // namespace
}  // namespace bw::calib
