// Which word was meant.
#include "bitwright/suggest.h"

#include <gtest/gtest.h>

namespace bw {
namespace {

const std::vector<std::string> kWords = {"quantize", "measure", "eval", "plan", "inspect", "generate"};

TEST(Suggest, FindsWhatOneSlipAwayWasMeant) {
  for (const char* slip : {"quantise", "quantiz", "quantizee", "qauntize", "Quantize"}) {
    EXPECT_EQ(nearest_word(slip, kWords), "quantize") << slip;
  }
  EXPECT_EQ(nearest_word("eavl", kWords), "eval");  // two neighbours exchanged are one slip, not two
  EXPECT_EQ(nearest_word("paln", kWords), "plan");
}

TEST(Suggest, AThirdOfTheWordMayDiffer) {
  EXPECT_EQ(nearest_word("quantisation", {"quantize"}), std::nullopt);
  EXPECT_EQ(nearest_word("quintise", kWords), "quantize");
  EXPECT_EQ(nearest_word("quintises", kWords), "quantize");
  EXPECT_EQ(nearest_word("quimtises", kWords), std::nullopt);
  EXPECT_EQ(nearest_word("xyz", kWords), std::nullopt);
}

TEST(Suggest, NothingIsMeantByNothingOrByAWordThatIsThere) {
  EXPECT_EQ(nearest_word("", kWords), std::nullopt);
  EXPECT_EQ(nearest_word("plan", kWords), std::nullopt);
  EXPECT_EQ(nearest_word("plan", {}), std::nullopt);
  EXPECT_EQ(nearest_word("x", {"y"}), std::nullopt);
  EXPECT_EQ(nearest_word(std::string(100000, 'a'), {std::string(100000, 'b')}), std::nullopt);
}

TEST(Suggest, ThePartOfAnOptionMeansIt) {
  const std::vector<std::string> options = {"--calib", "--calib-rows", "--calib-length", "--temperature", "--top-k"};
  EXPECT_EQ(nearest_word("--rows", options), "--calib-rows");
  EXPECT_EQ(nearest_word("--length", options), "--calib-length");
  EXPECT_EQ(nearest_word("--temp", options), "--temperature");
  EXPECT_EQ(nearest_word("--calibration", options), "--calib");
  EXPECT_EQ(nearest_word("--ows", options), std::nullopt);           // no whole part
  EXPECT_EQ(nearest_word("--te", options), std::nullopt);            // could be anything
  EXPECT_EQ(nearest_word("--calib-roes", options), "--calib-rows");  // a slip is nearer than a part
  EXPECT_EQ(nearest_word("---", options), std::nullopt);
}

TEST(Suggest, OfSeveralAsNearItIsTheFirst) {
  EXPECT_EQ(nearest_word("--bpq", {"--bpw", "--bpx"}), "--bpw");
  EXPECT_EQ(nearest_word("--bpx1", {"--bpw", "--bpx"}), "--bpx");
}

}  // namespace
}  // namespace bw
