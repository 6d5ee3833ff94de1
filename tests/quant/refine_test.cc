#include "quant/refine.h"

#include <gtest/gtest.h>

#include "quant/naive.h"

namespace bw::quant {
namespace {

class RefineOn : public OnDevice {
 protected:
  // GPTQ and then `sweeps` of refinement.
  HostLinear refined(const Problem& p, const Layout& layout, int sweeps) {
    const Factor factor = factorize(*device_, upload(*device_, p.h), kDamping, /*keep_hessian=*/true);
    const auto out = static_cast<uint32_t>(p.w.rows());
    const QuantizedLinear q = quantize_gptq(*device_, rows_on(*device_, p, factor), out, factor, layout);
    refine(*device_, rows_on(*device_, p, factor), factor, q, sweeps);
    return read_linear(*device_, q);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, RefineOn, testing::ValuesIn(test::kDevices));

TEST_P(RefineOn, LowersTheErrorAndKeepsAccountOfIt) {
  for (const auto& [out, in] : {std::pair<size_t, size_t>{70, 320}, {1, 32}, {33, 288}}) {
    const Problem p = make_problem(out, in, 5 + in);
    for (const Layout& layout : layouts_of(static_cast<uint32_t>(in))) {
      SCOPED_TRACE(testing::Message() << out << " x " << in << " " << layout.to_string());
      const HostLinear before = quantize_on(*device_, p, layout);
      double last = before.error;
      for (const int sweeps : {1, 3}) {
        const HostLinear after = refined(p, layout, sweeps);
        const double real = real_error(p, dequantize_on(*device_, after));
        EXPECT_NEAR(after.error, real, 3e-3 * before.error);
        EXPECT_LE(after.error, last * (1 + 1e-6));
        last = after.error;
      }
      EXPECT_TRUE(equal_bytes(refined(p, layout, 1).scale_codes, before.scale_codes));
    }
  }
}

TEST_P(RefineOn, GainsWhereLevelsAreFew) {
  const Problem p = make_problem(64, 320, 3);
  const Layout layout = uniform_layout(320, 2, 32);
  EXPECT_LT(refined(p, layout, 3).error, 0.97 * quantize_on(*device_, p, layout).error);
}

TEST_P(RefineOn, ChangesNothingWithoutSweeps) {
  const Problem p = make_problem(40, 96, 3);
  const Layout layout = uniform_layout(96, 3, 32);
  expect_same_bytes(refined(p, layout, 0), quantize_on(*device_, p, layout));
}

// After enough sweeps no single code can be moved by a level to lower the error.
TEST_P(RefineOn, EndsWhereNoSingleCodeGains) {
  const Problem p = make_problem(8, 64, 11);
  const HostLinear q = refined(p, uniform_layout(64, 3, 32), 50);
  const double error = real_error(p, naive_weights(q));
  for (uint32_t r = 0; r < q.in; ++r) {
    for (uint32_t c = 0; c < q.out; ++c) {
      for (const int step : {-1, 1}) {
        const int code = q.codes(r, c) + step;
        if (code < 0 || code > 7) continue;
        HostLinear moved{q.layout,
                         q.in,
                         q.out,
                         q.order,
                         Matrix<uint8_t>(q.in, q.codes.cols()),
                         Matrix<uint8_t>(q.scale_codes.rows(), q.scale_codes.cols()),
                         q.scale_max,
                         0};
        std::copy(q.codes.span().begin(), q.codes.span().end(), moved.codes.span().begin());
        std::copy(q.scale_codes.span().begin(), q.scale_codes.span().end(), moved.scale_codes.span().begin());
        moved.codes(r, c) = static_cast<uint8_t>(code);
        EXPECT_GE(real_error(p, naive_weights(moved)), error * (1 - 1e-5)) << r << ", " << c;
      }
    }
  }
}

}  // namespace
}  // namespace bw::quant
