// Texts that end before a stop text, however they are cut into pieces.
#include "tokenizer/stop_text.h"

#include <gtest/gtest.h>

namespace bw::tokenizer {
namespace {

struct Outcome {
  std::string text;
  bool stopped = false;
  bool operator==(const Outcome&) const = default;
};

// The text in pieces of n bytes.
Outcome in_pieces(const std::vector<std::string>& stops, std::string_view text, size_t n) {
  StopText stop(stops);
  Outcome o;
  for (size_t at = 0; at < text.size(); at += n) o.text += stop.push(text.substr(at, n));
  o.text += stop.finish();
  EXPECT_EQ(stop.finish(), "");
  o.stopped = stop.stopped();
  return o;
}

TEST(StopText, EndsBeforeTheFirstOfItsTextsWhateverThePieces) {
  for (size_t n = 1; n < 12; ++n) {
    EXPECT_EQ(in_pieces({"END"}, "one two END three", n), (Outcome{"one two ", true}));
    EXPECT_EQ(in_pieces({"three", "two"}, "one two three", n), (Outcome{"one ", true}));
    EXPECT_EQ(in_pieces({"aab"}, "aaab", n), (Outcome{"a", true}));
    EXPECT_EQ(in_pieces({"END"}, "no end, EN", n), (Outcome{"no end, EN", false}));
    EXPECT_EQ(in_pieces({}, "all", n), (Outcome{"all", false}));
    EXPECT_EQ(in_pieces({""}, "all", n), (Outcome{"all", false}));
    EXPECT_EQ(in_pieces({"x"}, "x", n), (Outcome{"", true}));
  }
}

TEST(StopText, HoldsBackOnlyWhatMayBecomeAStopText) {
  StopText stop({"\n\nUser:"});
  EXPECT_EQ(stop.push("one"), "one");
  EXPECT_EQ(stop.push("\n"), "");
  EXPECT_EQ(stop.push("two\n\n"), "\ntwo");
  EXPECT_EQ(stop.push("Us"), "");
  EXPECT_EQ(stop.push("ual"), "\n\nUsual");
  EXPECT_EQ(stop.push("\n\nUser: x"), "");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.push("more"), "");
  EXPECT_EQ(stop.finish(), "");
}

}  // namespace
}  // namespace bw::tokenizer
