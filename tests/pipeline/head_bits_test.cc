// The head's width: priced like a linear, chosen together with the linears' layouts or given.
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "bitwright/bitwright.h"
#include "pipeline/device_job.h"
#include "support/errors.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

constexpr test::TinySizes kSizes{64, 96, 2, 4, 2, 16, 480};
constexpr uint64_t kHeaderSlack = 512;  // digits of offsets, names of parts and numbers in config.json

const OutputOptions kAuto{std::nullopt, 0, 0}, kSix{6, 0, 0};

// Prices as of rounding: falling fourfold with each bit.
void set_prices(MatrixMeasurement& matrix, double scale) {
  for (codec::Candidate& c : matrix.candidates) {
    c.price = 0;
    for (const quant::BitRun& run : c.layout.runs) c.price += scale * run.rows * matrix.out * std::pow(4.0, -run.bits);
  }
}

class HeadBits : public testing::Test {
 protected:
  void SetUp() override {
    test::make_tiny_model("LlamaForCausalLM", kSizes).save(folder_ / "model");
    dir_.emplace(folder_ / "model");
  }

  // A measurement in which an error in the head costs `head` times as much as one in a linear.
  Measurement priced(double head) const {
    Measurement m = shape_measurement(*dir_);
    for (LinearMeasurement& linear : m.linears) set_prices(linear, 1e-5);
    set_prices(m.head, head * 1e-5);
    return m;
  }

  static int head_bits(const OutputPlan& plan) { return plan.layouts.at("lm_head").runs.front().bits; }

  test::TempDir folder_;
  std::optional<model::ModelDir> dir_;
};

TEST_F(HeadBits, ADearHeadGetsMoreAndACheapOneFewer) {
  EXPECT_EQ(head_bits(plan_for_bpw(*dir_, priced(1e4), 4, kAuto)), 8);
  EXPECT_EQ(head_bits(plan_for_bpw(*dir_, priced(1), 4, kAuto)), 4);
  EXPECT_EQ(head_bits(plan_for_bpw(*dir_, priced(1e-4), 4, kAuto)), 2);
}

TEST_F(HeadBits, TheWholeIsNoLargerAndNoDearerThanWithSixBits) {
  for (const double head : {0.0, 1e-3, 0.1, 1.0, 30.0, 1e3, 1e6}) {
    const Measurement m = priced(head);
    for (const double bpw : {2.9, 3.0, 4.0, 5.5, 8.2}) {
      const OutputPlan free = plan_for_bpw(*dir_, m, bpw, kAuto), six = plan_for_bpw(*dir_, m, bpw, kSix);
      EXPECT_LE(free.bytes, six.bytes + kHeaderSlack) << head << ", " << bpw;
      EXPECT_LE(free.predicted_kld, six.predicted_kld) << head << ", " << bpw;
      EXPECT_EQ(head_bits(six), 6);
      EXPECT_LE(six.bpw_linears, bpw);
    }
  }
}

TEST_F(HeadBits, TheConfigTellsTheWidthThatWasChosen) {
  for (const double head : {1e4, 1e-4}) {
    const OutputPlan plan = plan_for_bpw(*dir_, priced(head), 4, kAuto);
    const io::Json config = io::Json::parse(plan.config)["quantization_config"];
    EXPECT_EQ(config["head_bits"], head_bits(plan));
    EXPECT_EQ(config["bits"].get<double>(), plan.bpw_linears);
    EXPECT_EQ(plan.bpw_linears > 4, head < 1);  // what the head leaves is spent
    EXPECT_NEAR(plan.bpw_head, head_bits(plan), 0.5);
  }
  EXPECT_EQ(io::Json::parse(plan_for_bpw(*dir_, priced(1), 4, kSix).config)["quantization_config"]["bits"], 4.0);
}

TEST_F(HeadBits, ThePredictionCountsTheHeadAtAnyWidth) {
  const Measurement m = priced(1);
  const double plain = plan_for_bpw(*dir_, m, 4, {16, 0, 0}).predicted_kld;
  ASSERT_EQ(m.head.candidates.size(), quant::kWidths);
  for (const codec::Candidate& c : m.head.candidates) {
    const OutputPlan plan = plan_for_bpw(*dir_, m, 4, {c.layout.runs.front().bits, 0, 0});
    EXPECT_DOUBLE_EQ(plan.predicted_kld, plain + c.price);
    EXPECT_EQ(plan.layouts.at("lm_head"), c.layout);
  }
}

TEST_F(HeadBits, ASizeIsKeptAndWellSpent) {
  const Measurement m = priced(30);
  const uint64_t smallest = plan_for_bpw(*dir_, m, 3, {2, 0, 0}).bytes, six = plan_for_bpw(*dir_, m, 3, kSix).bytes;
  for (uint64_t bytes = smallest + 4096; bytes < 2 * smallest; bytes += 1999) {
    const OutputPlan free = plan_for_size(*dir_, m, bytes, kAuto);
    EXPECT_LE(free.bytes, bytes);
    if (bytes < six + 4096) continue;
    const OutputPlan fixed = plan_for_size(*dir_, m, bytes, kSix);
    EXPECT_LE(free.predicted_kld, 1.05 * fixed.predicted_kld) << bytes;  // of budgets that differ by a few digits
  }
  expect_error([&] { plan_for_size(*dir_, m, 1000, kAuto); }, ErrorCode::kUsage,
               {"--size 1000", " to ", "ask for more"});
  expect_error([&] { plan_for_size(*dir_, m, 1000, kSix); }, ErrorCode::kUsage, {"with 6 bits for the head"});
}

TEST_F(HeadBits, AHeadThatCannotBeStoredStaysInHalf) {
  test::TinySizes sizes = kSizes;
  sizes.hidden = 80;
  test::make_tiny_model("LlamaForCausalLM", sizes).save(folder_ / "odd");
  const model::ModelDir odd(folder_ / "odd");
  const Measurement m = shape_measurement(odd);
  EXPECT_TRUE(m.head.candidates.empty());
  for (const OutputOptions& options : {kAuto, kSix}) {
    const OutputPlan plan = plan_for_bpw(odd, m, 16, options);
    EXPECT_EQ(plan.bpw_head, 16);
    EXPECT_EQ(io::Json::parse(plan.config)["quantization_config"]["head_bits"], 16);
  }
}

TEST(HeadPrices, AreMeasuredAndComeBackFromAFile) {
  DeviceJob job(kSizes);
  job.measure(backend::make_cpu_backend(2), 8, 32);
  const Measurement& m = job.measurement();
  ASSERT_EQ(m.head.candidates.size(), quant::kWidths);
  double before = 2 * m.head.candidates.front().price;
  for (const codec::Candidate& c : m.head.candidates) {
    EXPECT_GT(c.price, 0);
    EXPECT_LT(c.price, before / 1.5);
    before = c.price;
  }
  const test::TempDir folder;
  save_measurement(m, folder / "m.json");
  EXPECT_EQ(to_json(load_measurement(folder / "m.json", job.dir())), to_json(m));
}

TEST(HeadPrices, ADamagedEntryIsRefused) {
  DeviceJob job(kSizes);
  Measurement m = shape_measurement(job.dir());
  m.fingerprint = fingerprint(job.dir());
  const io::Json whole = io::Json(to_json(m));
  const test::TempDir folder;
  const fs::path file = folder / "m.json";
  const auto load = [&](const io::Json& json) {
    std::ofstream(file) << json.dump();
    return load_measurement(file, job.dir());
  };
  EXPECT_EQ(to_json(load(whole)), to_json(m));
  const auto expect_refused = [&](auto change, std::initializer_list<std::string_view> words) {
    io::Json json = whole;
    change(json);
    expect_error([&] { load(json); }, ErrorCode::kModel, words);
  };
  using Json = io::Json;
  expect_refused([](Json& j) { j["version"] = 2; }, {"m.json", "version 2", "version 3"});
  expect_refused([](Json& j) { j.erase("head"); }, {"m.json", "'head' is missing"});
  expect_refused([](Json& j) { j["head"] = 6; }, {"m.json", "'key' is missing"});
  for (const double price : {-1.0, 1e300}) {
    expect_refused([price](Json& j) { j["head"]["candidates"][0]["price"] = price; }, {"m.json", "price", "1e+12"});
    expect_refused([price](Json& j) { j["linears"][0]["candidates"][0]["price"] = price; },
                   {"m.json", "price", "1e+12"});
  }
  expect_refused([](Json& j) { j["head"]["out"] = 64; }, {"m.json", "lm_head", "480 x 64"});
  expect_refused([](Json& j) { j["head"]["key"] = "head"; }, {"m.json", "lm_head", "480 x 64"});
  expect_refused([](Json& j) { j["head"]["candidates"].erase(2); }, {"m.json", "lm_head", "6 widths"});
  expect_refused([](Json& j) { j["head"]["candidates"].clear(); }, {"m.json", "lm_head"});
  expect_refused([](Json& j) { std::swap(j["head"]["candidates"][0], j["head"]["candidates"][1]); }, {"lm_head"});
  expect_refused([](Json& j) { j["head"]["candidates"][0]["layout"][0][2] = 64; }, {"lm_head"});
  expect_refused([](Json& j) { j["head"]["candidates"][0]["layout"][0][1] = 32; }, {"lm_head"});
  expect_refused([](Json& j) { j["head"]["candidates"][0]["price"] = -1; }, {"lm_head", "price"});
  expect_refused([](Json& j) { j["head"]["candidates"] = 3; }, {"lm_head", "'candidates'"});
}

// What a coarse head alone does to the model is what its price says.
TEST(HeadPrices, ForetellTheDivergence) {
  const test::TempDir folder;
  const fs::path text = folder / "text.txt";
  std::ofstream written(text);
  for (int i = 0; i < 300; ++i) written << "Page " << i << ": the orchard was in bloom, and nobody had seen the cat.\n";
  written.close();
  QuantizeOptions o;
  o.model = fs::path(BW_FIXTURES) / "models" / "llama";
  o.bpw = {8};
  o.calibration = {{text}, 16, 64, 1};
  for (const int bits : {3, 4}) {
    o.output = folder / std::to_string(bits);
    o.head_bits = bits;
    const QuantizeResult r = quantize(o).at(0);
    EvaluateOptions e{r.output, o.model, text, 16, 64, {}};
    const double ratio = evaluate(e).kld.value / r.predicted_kld;
    EXPECT_GT(ratio, 0.5) << bits << " bits: " << r.predicted_kld;
    EXPECT_LT(ratio, 2) << bits << " bits: " << r.predicted_kld;
  }
}

}  // namespace
}  // namespace bw::pipeline
