#include "quant/gptq.h"

#include <cstring>

#include <gtest/gtest.h>

#include "bitwright/error.h"
#include "quant/group_kernel.h"
#include "quant/price.h"
#include "quant/random_matrix.h"
#include "quant/scale_grid.h"

namespace bw::quant {
namespace {

constexpr float kDamping = 0.01f;

struct Case {
  Matrix<float> w;  // (out, in)
  Matrix<float> h;  // (in, in)
  Factor factor;
};

std::unique_ptr<backend::Backend> host(size_t threads = 2) { return backend::make_cpu_backend(threads); }

Case make_case(size_t out, size_t in, uint64_t seed, Spread spread = Spread::kGaussian) {
  Case c{random_matrix(out, in, seed, 0.03f, spread), random_hessian(in, 2 * in + 10, seed), {}};
  c.factor = factorize(*host(), c.h.view(), kDamping, "case");
  return c;
}

QuantizedLinear quantize(const Case& c, const Layout& layout, size_t threads = 2) {
  const auto device = host(threads);
  Matrix<float> t = transposed_in_order(*device->host_pool(), c.w.view(), c.factor.order);
  return quantize_gptq(*device, std::move(t), static_cast<uint32_t>(c.w.rows()), c.factor, layout);
}

Matrix<float> difference(const Matrix<float>& a, const Matrix<float>& b) {
  Matrix<float> d(a.rows(), a.cols());
  for (size_t i = 0; i < d.span().size(); ++i) d.span()[i] = a.span()[i] - b.span()[i];
  return d;
}

double real_error(const Case& c, const Matrix<float>& stored) {
  const double added = c.factor.identity ? 0 : static_cast<double>(c.factor.damping) * mean_diagonal(c.h.view());
  return trace_error(difference(c.w, stored).view(), c.h.view(), added, mean_diagonal(c.h.view()));
}

// Stored weights of the same layout, scales chosen alike, each weight rounded to nearest.
Matrix<float> round_to_nearest(const Case& c, const Layout& layout) {
  ThreadPool pool(1);
  const Matrix<float> t = transposed_in_order(pool, c.w.view(), c.factor.order);
  Matrix<float> stored(c.w.rows(), c.w.cols());
  std::vector<float> wanted(t.cols());
  std::vector<uint8_t> codes(t.cols());
  for (const Group& g : layout.groups()) {
    const auto rows = t.view().rows_slice(g.first, g.rows);
    const float* weights = c.factor.weights.data() + g.first;
    find_scales(rows, weights, g.bits, wanted.data());
    const auto scales = code_scales(scale_max_for(*std::max_element(wanted.begin(), wanted.end())));
    find_codes(rows, weights, g.bits, scales.data(), codes.data(), nullptr);
    const float levels = static_cast<float>(1 << (g.bits - 1));
    for (size_t r = 0; r < g.rows; ++r) {
      for (size_t o = 0; o < c.w.rows(); ++o) {
        const float s = scales[codes[o]];
        const float level = s == 0 ? 0 : std::clamp(std::nearbyint(rows(r, o) / s), -levels, levels - 1);
        stored(o, c.factor.order[g.first + r]) = round_to_half(level * s);
      }
    }
  }
  return stored;
}

std::vector<Layout> layouts_of(uint32_t in) {
  std::vector<Layout> layouts;
  for (const int bits : kBitWidths) {
    for (const uint32_t size : kGroupSizes) layouts.push_back(uniform_layout(in, bits, size));
  }
  if (in >= 96) {
    layouts.push_back({{{8, 32, 32}, {4, in - 64, 128}, {2, 32, 64}}});
    layouts.push_back({{{6, 64, 64}, {3, in - 64, 64}}});
    layouts.push_back({{{5, 32, 32}, {4, 32, 32}, {3, in - 64, 128}}});
  }
  return layouts;
}

TEST(Gptq, TransposesInOrderAndPads) {
  ThreadPool pool(2);
  for (const size_t out : {1, 31, 32, 33, 100}) {
    const Matrix<float> w = random_matrix(out, 64, out);
    std::vector<uint32_t> order(64);
    for (uint32_t i = 0; i < 64; ++i) order[i] = (i * 37 + 5) % 64;
    const Matrix<float> t = transposed_in_order(pool, w.view(), order);
    ASSERT_EQ(t.rows(), 64u);
    ASSERT_EQ(t.cols(), (out + 31) / 32 * 32);
    for (size_t r = 0; r < 64; ++r) {
      for (size_t c = 0; c < t.cols(); ++c) ASSERT_EQ(t(r, c), c < out ? w(c, order[r]) : 0);
    }
  }
}

TEST(Gptq, IsNotWorseThanRoundingToNearest) {
  const Case c = make_case(70, 320, 1);
  for (const Layout& layout : layouts_of(320)) {
    SCOPED_TRACE(layout.to_string());
    ThreadPool pool(2);
    const QuantizedLinear q = quantize(c, layout);
    const Matrix<float> stored = dequantize(pool, q);
    EXPECT_LE(real_error(c, stored), real_error(c, round_to_nearest(c, layout)));
  }
}

TEST(Gptq, ErrorIsTheTraceOnItsHessian) {
  for (const Spread spread : {Spread::kGaussian, Spread::kOneOutlier}) {
    for (const auto& [out, in] : {std::pair<size_t, size_t>{70, 320}, {1, 32}, {33, 288}, {300, 96}}) {
      const Case c = make_case(out, in, 2 + in, spread);
      for (const Layout& layout : layouts_of(static_cast<uint32_t>(in))) {
        SCOPED_TRACE(testing::Message() << out << " x " << in << " " << layout.to_string());
        ThreadPool pool(2);
        const QuantizedLinear q = quantize(c, layout);
        const double expected = real_error(c, dequantize(pool, q));
        EXPECT_NEAR(q.error, expected, 3e-3 * expected);
      }
    }
  }
}

TEST(Gptq, FillsAllFieldsAndPadding) {
  const Case c = make_case(33, 96, 3);
  const Layout layout{{{4, 32, 32}, {2, 64, 64}}};
  const QuantizedLinear q = quantize(c, layout);
  EXPECT_EQ(q.layout, layout);
  EXPECT_EQ(q.in, 96u);
  EXPECT_EQ(q.out, 33u);
  EXPECT_EQ(q.padded_out(), 64u);
  EXPECT_EQ(q.order, c.factor.order);
  ASSERT_EQ(q.scale_codes.rows(), 2u);
  for (size_t col = 33; col < 64; ++col) {
    for (size_t r = 0; r < 96; ++r) ASSERT_EQ(q.codes(r, col), r < 32 ? 8 : 2);
    for (size_t g = 0; g < 2; ++g) ASSERT_EQ(q.scale_codes(g, col), 0);
  }
}

TEST(Gptq, WorksWithoutAFactorization) {
  Case c = make_case(40, 64, 4);
  c.h(0, 1) = c.h(1, 0) = 1e9f;
  c.factor = factorize(*host(), c.h.view(), kDamping, "case");
  ASSERT_TRUE(c.factor.identity);
  for (size_t i = 0; i < 64; ++i) {
    for (size_t j = 0; j < 64; ++j) c.h(i, j) = i == j ? c.h(i, j) : 0;
  }
  ThreadPool pool(2);
  const QuantizedLinear q = quantize(c, uniform_layout(64, 4, 32));
  const double expected = real_error(c, dequantize(pool, q));
  EXPECT_NEAR(q.error, expected, 1e-3 * expected);
  EXPECT_NEAR(expected, real_error(c, round_to_nearest(c, q.layout)), 1e-3 * expected);
}

TEST(Gptq, StoresHugeTinyAndZeroWeights) {
  for (const float size : {0.0f, 1e-30f, 1e-7f, 15000.0f}) {
    Case c = make_case(40, 64, 5);
    c.w = random_matrix(40, 64, 6, size);
    for (float& x : c.w.span()) x = std::clamp(x, -65504.0f, 65504.0f);
    for (const int bits : kBitWidths) {
      ThreadPool pool(2);
      const QuantizedLinear q = quantize(c, uniform_layout(64, bits, 64));
      const Matrix<float> stored = dequantize(pool, q);
      for (const float x : stored.span()) ASSERT_TRUE(std::isfinite(x)) << size << ", " << bits << " bits";
      const Matrix<float> zero(40, 64, true);
      EXPECT_LE(real_error(c, stored), real_error(c, zero)) << size << ", " << bits << " bits";
    }
  }
}

TEST(Gptq, IsTheSameAtAnyNumberOfThreads) {
  const Case c = make_case(600, 288, 7);
  for (const Layout& layout : {uniform_layout(288, 3, 128), Layout{{{6, 64, 64}, {4, 224, 128}}}}) {
    const QuantizedLinear one = quantize(c, layout, 1);
    for (const size_t threads : {2, 3}) {
      const QuantizedLinear other = quantize(c, layout, threads);
      EXPECT_EQ(std::memcmp(one.codes.data(), other.codes.data(), one.codes.span().size()), 0);
      EXPECT_EQ(std::memcmp(one.scale_codes.data(), other.scale_codes.data(), one.scale_codes.span().size()), 0);
      EXPECT_EQ(one.scale_max, other.scale_max);
      EXPECT_EQ(one.error, other.error);
    }
  }
}

TEST(Gptq, DequantizesAsTheLoaderDoes) {
  ThreadPool pool(2);
  for (const uint32_t out : {1u, 33u, 64u}) {
    const QuantizedLinear q = random_codes({{{8, 64, 32}, {5, 96, 64}, {3, 32, 32}, {2, 160, 128}}}, out, out);
    const Matrix<float> w = dequantize(pool, q);
    ASSERT_EQ(w.rows(), out);
    ASSERT_EQ(w.cols(), 352u);
    const std::vector<Group> groups = q.layout.groups();
    for (size_t g = 0; g < groups.size(); ++g) {
      for (uint32_t r = groups[g].first; r < groups[g].first + groups[g].rows; ++r) {
        for (uint32_t c = 0; c < out; ++c) {
          const float s = static_cast<float>(q.scale_codes(g, c) + 1);
          const float scale = round_to_half(s * s * round_to_half(to_float(q.scale_max[g]) / 256));
          const float level = static_cast<float>(q.codes(r, c)) - static_cast<float>(1 << (groups[g].bits - 1));
          ASSERT_EQ(w(c, q.order[r]), round_to_half(level * scale)) << r << "," << c;
        }
      }
    }
  }
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

TEST(Price, TableIsTheRoundingErrorOfEachGroup) {
  const Case c = make_case(40, 160, 11);
  ThreadPool one(1), three(3);
  const Matrix<float> t = transposed_in_order(one, c.w.view(), c.factor.order);
  const PriceTable table = price_table(three, t, c.factor), again = price_table(one, t, c.factor);
  EXPECT_EQ(table.in, 160u);
  EXPECT_EQ(table.errors, again.errors) << "must not depend on the number of threads";
  for (const Layout& layout : layouts_of(160)) {
    if (layout.runs.size() > 1) continue;
    const Matrix<float> stored = round_to_nearest(c, layout);
    double expected = 0;
    for (uint32_t r = 0; r < 160; ++r) {
      for (size_t o = 0; o < 40; ++o) {
        const double e = c.w(o, c.factor.order[r]) - stored(o, c.factor.order[r]);
        expected += e * e * c.factor.weights[r];
      }
    }
    expected *= feedback(layout.runs[0].bits);
    EXPECT_NEAR(table.price(layout), expected, 0.02 * expected) << layout.to_string();
  }
}

// The estimate must put layouts in the order of their real GPTQ errors, and lie near them.
TEST(Price, EstimatesWhatGptqComesTo) {
  struct Point {
    double estimate, actual;
  };
  std::vector<Point> points;
  for (uint64_t seed = 20; seed < 24; ++seed) {
    const Case c = make_case(64 + 32 * (seed % 3), 256, seed, seed % 2 == 0 ? Spread::kGaussian : Spread::kLaplace);
    ThreadPool pool(2);
    const PriceTable table = price_table(pool, transposed_in_order(pool, c.w.view(), c.factor.order), c.factor);
    for (const Layout& layout : layouts_of(256)) {
      if (layout.runs.size() == 3) continue;  // runs that begin inside a group of the table
      points.push_back({table.price(layout), quantize(c, layout).error});
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
