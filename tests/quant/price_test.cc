#include "quant/price.h"

#include <gtest/gtest.h>

#include "bitwright/error.h"
#include "quant/naive.h"

namespace bw::quant {
namespace {

PriceTable price_on(backend::Backend& device, const Problem& p) {
  const Factor factor = upload(device, p.factor);
  const Matrix<double> errors =
      read_matrix<double>(device, price_errors(device, rows_on(device, p, factor), factor.weights));
  return price_table(errors.view(), static_cast<uint32_t>(p.w.cols()));
}

TEST(Price, TableSumsTheGroupsOfALayout) {
  PriceTable table;
  table.in = 192;
  for (size_t w = 0; w < kWidths; ++w) {
    table.errors[w][0].assign(6, 1.0 + static_cast<double>(w));
    table.errors[w][1].assign(3, 10.0 + static_cast<double>(w));
    table.errors[w][2] = {100.0 + static_cast<double>(w), 200.0 + static_cast<double>(w)};
  }
  EXPECT_EQ(table.price(uniform_layout(192, 8, 32)), 6);
  EXPECT_EQ(table.price(uniform_layout(192, 2, 128)), 310);
  EXPECT_EQ(table.price({{{6, 64, 32}, {4, 128, 64}}}), 2 * 2 + 13 * 2);
  EXPECT_EQ(table.price({{{6, 128, 128}, {3, 64, 128}}}), 101 + 204);
  EXPECT_THROW(table.price({{{6, 32, 32}, {3, 160, 64}}}), Error);
  EXPECT_THROW(width_index(7), Error);
  EXPECT_THROW(group_size_index(16), Error);
}

TEST(Price, TableIsTheSameOnEveryDeviceAtAnyNumberOfThreads) {
  const Problem p = make_problem(40, 160, 11);
  const PriceTable one = price_on(*test::make_device("cpu", 1), p);
  for (const char* name : test::kDevices) {
    for (const size_t threads : {1, 3}) EXPECT_EQ(price_on(*test::make_device(name, threads), p).errors, one.errors);
  }
}

class PriceOn : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, PriceOn, testing::ValuesIn(test::kDevices));

TEST_P(PriceOn, TableIsTheRoundingErrorOfEachGroup) {
  const Problem p = make_problem(40, 160, 11);
  const PriceTable table = price_on(*device_, p);
  EXPECT_EQ(table.in, 160u);
  for (const Layout& layout : layouts_of(160)) {
    if (layout.runs.size() > 1) continue;
    const Matrix<float> stored = round_to_nearest(p, layout);
    double expected = 0;
    for (uint32_t r = 0; r < 160; ++r) {
      for (size_t o = 0; o < 40; ++o) {
        const double e = p.w(o, p.factor.input(r)) - stored(o, p.factor.input(r));
        expected += e * e * p.factor.weights[r];
      }
    }
    expected *= feedback(layout.runs[0].bits);
    EXPECT_NEAR(table.price(layout), expected, 0.02 * expected) << layout.to_string();
  }
}

// The estimate must put layouts in the order of their real GPTQ errors, and lie near them.
TEST_P(PriceOn, EstimatesWhatGptqComesTo) {
  struct Point {
    double estimate, actual;
  };
  std::vector<Point> points;
  for (uint64_t seed = 20; seed < 24; ++seed) {
    const Problem p =
        make_problem(64 + 32 * (seed % 3), 256, seed, seed % 2 == 0 ? Spread::kGaussian : Spread::kLaplace);
    const PriceTable table = price_on(*device_, p);
    for (const Layout& layout : layouts_of(256)) {
      if (layout.runs.size() == 3) continue;  // runs that begin inside a group of the table
      points.push_back({table.price(layout), quantize_on(*device_, p, layout).error});
      EXPECT_GT(points.back().estimate, 0.84 * points.back().actual) << layout.to_string();
      EXPECT_LT(points.back().estimate, 1.17 * points.back().actual) << layout.to_string();
    }
  }
  size_t agree = 0, pairs = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      agree += (points[i].estimate < points[j].estimate) == (points[i].actual < points[j].actual);
      ++pairs;
    }
  }
  EXPECT_GE(static_cast<double>(agree) / static_cast<double>(pairs), 0.97);
}

}  // namespace
}  // namespace bw::quant
