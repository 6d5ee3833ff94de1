// More bits never make a smaller or a worse output.
#include "pipeline/output_plan.h"

#include <cmath>

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "pipeline/device_job.h"

namespace bw::pipeline {
namespace {

// By which files may differ besides the weights: digits in config.json and in the headers of tensor files.
constexpr uint64_t kDigits = 128;

struct Shape {
  const char* architecture;
  test::TinySizes sizes;
};

const Shape kShapes[] = {
    {"LlamaForCausalLM", {.hidden = 64, .intermediate = 96, .layers = 2, .vocab = 96}},
    {"Qwen2ForCausalLM", {.hidden = 128, .intermediate = 256, .layers = 3, .heads = 8, .vocab = 96}},
    {"Gemma3ForCausalLM", {.hidden = 96, .intermediate = 160, .layers = 1, .heads = 2, .kv_heads = 1, .vocab = 128}},
    {"LlamaForCausalLM", {.hidden = 64, .intermediate = 172, .layers = 2, .vocab = 96}},  // its MLP stays in f16
};

class MoreBits : public testing::TestWithParam<std::tuple<size_t, std::optional<int>>> {
 protected:
  MoreBits() : job_(shape().sizes, shape().architecture) { job_.measure(backend::make_cpu_backend(2), 8, 32); }

  static const Shape& shape() { return kShapes[std::get<0>(GetParam())]; }
  static std::optional<int> head_bits() { return std::get<1>(GetParam()); }

  // Plans at every hundredth of a bit that the model can be stored at, up to 8.
  std::vector<std::pair<double, OutputPlan>> plans() {
    const Reach reach = reach_of(job_.measurement());
    std::vector<std::pair<double, OutputPlan>> plans;
    for (int hundredths = 220; hundredths <= 1600; ++hundredths) {
      const double bpw = hundredths / 100.0;
      if (bpw < reach.smallest_bpw() || bpw > reach.largest_bpw()) continue;
      plans.emplace_back(bpw, plan_for_bpw(job_.dir(), job_.measurement(), bpw, {head_bits(), 0, 0}));
    }
    return plans;
  }

  DeviceJob job_;
};

TEST_P(MoreBits, NeverMakeASmallerOrAWorseOutput) {
  const auto all = plans();
  ASSERT_GT(all.size(), 100u);
  for (size_t i = 1; i < all.size(); ++i) {
    const auto& [bpw, plan] = all[i];
    const OutputPlan& less = all[i - 1].second;
    EXPECT_GE(plan.bytes + kDigits, less.bytes) << bpw;
    EXPECT_LE(plan.predicted_kld, less.predicted_kld) << bpw;
    if (head_bits()) {
      EXPECT_GE(plan.bpw_linears, less.bpw_linears) << bpw;
    }
  }
  EXPECT_GT(all.back().second.bytes, all.front().second.bytes + kDigits);
  EXPECT_LT(all.back().second.predicted_kld, 0.1 * all.front().second.predicted_kld);
}

TEST_P(MoreBits, AreUsedAndNeverMoreThanWereAskedFor) {
  if (!head_bits()) return;  // the head shares the bits
  const Reach reach = reach_of(job_.measurement());
  // Where a larger step of one linear does not fit, a smaller one of another may: less than the largest is left.
  double largest_step = 0;
  for (const LinearMeasurement& linear : job_.measurement().linears) {
    for (size_t c = 1; c < linear.candidates.size(); ++c) {
      const auto step =
          static_cast<double>(linear.candidates[c].bits) - static_cast<double>(linear.candidates[c - 1].bits);
      largest_step = std::max(largest_step, step / static_cast<double>(reach.weights));
    }
  }
  for (const auto& [bpw, plan] : plans()) {
    EXPECT_LE(plan.bpw_linears, bpw);
    EXPECT_GE(plan.bpw_linears, bpw - largest_step) << bpw;
  }
}

INSTANTIATE_TEST_SUITE_P(TinyModels, MoreBits,
                         testing::Combine(testing::Range(size_t{0}, std::size(kShapes)),
                                          testing::Values(std::optional<int>(6), std::optional<int>(16),
                                                          std::optional<int>())));

}  // namespace
}  // namespace bw::pipeline
