#include "eval/statistics.h"

#include <cmath>

#include <gtest/gtest.h>

namespace bw::eval {
namespace {

TEST(Statistics, MeanAndItsError) {
  const std::vector<double> v = {1, 2, 3, 4};
  const Estimate e = mean(v);
  EXPECT_DOUBLE_EQ(e.value, 2.5);
  EXPECT_NEAR(e.error, 0.6454972243679028, 1e-15);  // numpy: std(ddof=1) / sqrt(4)
  EXPECT_EQ(mean(std::vector<double>{}).value, 0);
  EXPECT_EQ(mean(std::vector<double>{7}).error, 0);
}

TEST(Statistics, PerplexityIsTheExponentialOfTheMean) {
  const std::vector<double> nll = {std::log(2.0), std::log(8.0)};
  const Estimate e = perplexity(nll);
  EXPECT_NEAR(e.value, 4.0, 1e-12);
  EXPECT_NEAR(e.error, 4.0 * mean(nll).error, 1e-12);
}

TEST(Statistics, PercentilesInterpolateAsNumpyDoes) {
  const std::vector<double> v = {1, 2, 4, 8, 16};
  EXPECT_DOUBLE_EQ(percentile(v, 0), 1);
  EXPECT_DOUBLE_EQ(percentile(v, 0.5), 4);
  EXPECT_DOUBLE_EQ(percentile(v, 0.9), 12.8);  // numpy.percentile(v, 90)
  EXPECT_DOUBLE_EQ(percentile(v, 1), 16);
  EXPECT_DOUBLE_EQ(percentile(std::vector<double>{3}, 0.99), 3);
}

TEST(Statistics, SummaryOfAComparison) {
  const EvaluateResult r = summarize({{0.1, 0.3, 0.2}, {1, 2, 3}, {1.5, 2, 3.1}, {1, 1, 0}});
  EXPECT_NEAR(r.kld.value, 0.2, 1e-15);
  EXPECT_NEAR(r.kld_median, 0.2, 1e-15);
  EXPECT_NEAR(r.kld_max, 0.3, 1e-15);
  EXPECT_NEAR(r.log_ppl_ratio.value, 0.2, 1e-12);
  EXPECT_NEAR(r.top1.value, 2.0 / 3, 1e-15);
  EXPECT_EQ(r.tokens, 3u);
}

}  // namespace
}  // namespace bw::eval
