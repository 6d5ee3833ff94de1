// Generation: the cache that grows, and how tokens are drawn.
#include "nn/language_model.h"

#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "support/devices.h"
#include "support/errors.h"
#include "support/plain_linears.h"

namespace bw::nn {
namespace {

class LanguageModelOn : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Devices, LanguageModelOn, testing::ValuesIn(test::kDevices));

TEST_P(LanguageModelOn, ACacheThatGrowsGivesTheSameLogits) {
  const model::ModelDir dir(std::filesystem::path(BW_FIXTURES) / "models" / "gemma3");
  const auto device = test::make_device(GetParam());
  const LanguageModel model(*device, dir, 24, backend::Precision::kF32, test::plain_linears(dir, *device));
  KvCache fixed(*device, dir.config(), 2, 24), growing(*device, dir.config(), 2, 1);
  for (uint32_t at = 0; at < 24; ++at) {
    const std::vector<uint32_t> ids = {at * 7 % 250, at * 11 % 250 + 3};
    const auto want = device->read<float>(model.step(ids, 1, fixed), "test");
    make_room(*device, dir.config(), growing.length + 1, growing);
    ASSERT_EQ(device->read<float>(model.step(ids, 1, growing), "test"), want) << at;
  }
  EXPECT_EQ(growing.capacity, 32u);
  EXPECT_EQ(growing.length, 24u);
}

// As a conversation does: what stays the same is kept, what differs is forgotten, several tokens come at once.
TEST_P(LanguageModelOn, TokensThatFollowTheCacheAtOnceGiveTheLogitsOfOneByOne) {
  for (const char* name : {"gemma3", "llama", "mistral-window-linear"}) {
    const model::ModelDir dir(std::filesystem::path(BW_FIXTURES) / "models" / name);
    const auto device = test::make_device(GetParam());
    const LanguageModel model(*device, dir, 24, backend::Precision::kF32, test::plain_linears(dir, *device));
    std::vector<uint32_t> ids(24);
    for (uint32_t i = 0; i < ids.size(); ++i) ids[i] = (i * i * 7 + 3) % 250;
    KvCache whole(*device, dir.config(), 1, 24), parts(*device, dir.config(), 1, 24);
    const auto want = device->read<float>(model.step(ids, ids.size(), whole), "test");
    model.step(std::span(ids).first(5), 5, parts);
    const std::vector<uint32_t> others(9, 17);
    model.step(others, others.size(), parts);
    parts.length = 5;
    const auto got = device->read<float>(model.step(std::span(ids).subspan(5), 19, parts), "test");
    EXPECT_EQ(parts.length, 24u);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4) << name << " " << i;
  }
}

TEST(Sample, RefusesLogitsThatAreNotFinite) {
  for (const float bad : {NAN, INFINITY}) {
    for (const size_t at : {size_t{0}, size_t{7}}) {
      std::vector<float> logits(8, 1.0f);
      logits[at] = bad;
      for (const float temperature : {0.0f, 1.0f}) {
        test::expect_error([&] { sample(logits, {.temperature = temperature}, 0.5); }, ErrorCode::kNumeric,
                           {"token " + std::to_string(at), std::isnan(bad) ? "nan" : "inf"});
      }
    }
  }
  const std::vector<float> one_is_impossible = {-INFINITY, 0.0f};
  EXPECT_EQ(sample(one_is_impossible, {.temperature = 1}, 0.0), 1u);
}

TEST(Sample, KeepsToTheMostLikelyTokens) {
  const std::vector<float> logits = {0.0f, 3.0f, 3.0f, 1.0f};
  EXPECT_EQ(sample(logits, {}, 0.999), 1u);
  for (const double u : {0.0, 0.3, 0.6, 0.999}) {
    EXPECT_EQ(sample(logits, {.temperature = 1, .top_k = 1}, u), 1u);
    EXPECT_EQ(sample(logits, {.temperature = 1, .top_p = 0.4f}, u), 1u);
    EXPECT_EQ(sample(logits, {.temperature = 1, .top_k = 2}, u), u < 0.5 ? 1u : 2u);
    EXPECT_EQ(sample(logits, {.temperature = 1, .min_p = 0.2f}, u), u < 0.5 ? 1u : 2u);
    EXPECT_EQ(sample(logits, {.temperature = 1, .min_p = 1.0f}, u), u < 0.5 ? 1u : 2u);
  }
  // exp(-2) = 0.135 of the most likely, and exp(-3) = 0.05.
  EXPECT_EQ(sample(logits, {.temperature = 1, .min_p = 0.13f}, 0.999), 3u);
  EXPECT_EQ(sample(logits, {.temperature = 1, .min_p = 0.14f}, 0.999), 2u);
  EXPECT_EQ(sample(logits, {.temperature = 3, .min_p = 0.3f}, 0.999), 0u);  // of what the temperature makes of them
  EXPECT_EQ(sample(logits, {.temperature = 1}, 0.0), 0u);
  EXPECT_EQ(sample(logits, {.temperature = 1}, 0.999), 3u);
}

TEST(Probability, IsTheSoftmaxOfTheLogits) {
  const std::vector<float> logits = {0.0f, std::log(2.0f), -INFINITY, std::log(5.0f)};
  const std::vector<double> want = {0.125, 0.25, 0, 0.625};
  for (uint32_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(probability(logits, i), want[i], 1e-7);
  EXPECT_NEAR(probability(std::vector<float>{1000.0f, 1000.0f}, 1), 0.5, 1e-12);
}

}  // namespace
}  // namespace bw::nn
