// What is odd about the numbers of a model, though nothing fails: it is said.
#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>

#include "bitwright/bitwright.h"
#include "support/stopped.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace bw {
namespace {

namespace fs = std::filesystem;

class NumbersTold : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(text_);
    for (int i = 0; i < 100; ++i) text << "Lock " << i << ": the barge waits, the water rises, the gates open.\n";
  }

  static test::TinyModel tiny(const std::string& architecture = "LlamaForCausalLM") {
    test::TinySizes sizes;
    sizes.vocab = 288;
    return test::make_tiny_model(architecture, sizes, true);
  }

  // An MLP whose inputs are a thousand times larger than usual: its products are a million times.
  static test::TinyModel loud() {
    test::TinyModel m = tiny();
    for (float& w : m.at("model.layers.1.post_attention_layernorm.weight").values) w *= 1000;
    return m;
  }

  void save(const test::TinyModel& m) {
    fs::remove_all(model_);
    m.save(model_, io::TensorType::kF32);
    fs::copy_file(fs::path(BW_FIXTURES) / "models" / "llama" / "tokenizer.json", model_ / "tokenizer.json");
  }

  QuantizeOptions options(double bpw) {
    QuantizeOptions o;
    o.model = model_;
    o.output = dir_ / "out";
    o.overwrite = true;
    o.bpw = {bpw};
    o.calibration = {{text_}, 6, 40, 1};
    o.work.checkpoint_seconds = 0;
    o.engine.progress = [this](const ProgressEvent& e) {
      if (e.kind == ProgressEvent::Kind::kWarning) warnings_.push_back(e.text);
    };
    return o;
  }

  // The warnings of a run that hold `word`.
  std::vector<std::string> warnings(const QuantizeOptions& o, const std::string& word) {
    warnings_.clear();
    quantize(o);
    std::erase_if(warnings_, [&](const std::string& w) { return w.find(word) == std::string::npos; });
    return warnings_;
  }

  test::TempDir dir_;
  fs::path model_ = dir_ / "model", text_ = dir_ / "text.txt";
  std::vector<std::string> warnings_;
};

TEST_F(NumbersTold, StatesBeyondHalfAreToldOnceWithLayerAndMagnitude) {
  save(loud());
  for (const char* device : {"cpu", "sim"}) {
    QuantizeOptions o = options(6);
    o.engine.device = device;
    const std::vector<std::string> told = warnings(o, "beyond what f16 holds");
    ASSERT_EQ(told.size(), 1u) << device;
    EXPECT_NE(told[0].find("from layer 1 on, the quantized"), std::string::npos) << told[0];
  }
}

TEST_F(NumbersTold, ARunThatGoesOnKnowsWhatStatesTheFirstOneSaw) {
  save(loud());
  const std::vector<std::string> whole = warnings(options(6), "beyond what f16 holds");
  ASSERT_EQ(whole.size(), 1u);
  int stops = 0;
  for (int n = 1;; ++n) {
    fs::remove_all(dir_ / "out");
    if (!test::stopped_at(options(6), n)) break;
    ++stops;
    EXPECT_EQ(warnings(options(6), "beyond what f16 holds"), whole) << n;
  }
  EXPECT_GT(stops, 6);
}

TEST_F(NumbersTold, StatesWithinHalfAreNoWarning) {
  save(tiny());
  EXPECT_TRUE(warnings(options(6), "beyond what f16 holds").empty());
}

TEST_F(NumbersTold, AResidualStreamThatLoadersKeepInFloatsMayBeLarge) {
  test::TinyModel m = tiny("Gemma3ForCausalLM");
  for (float& w : m.at("model.layers.0.post_feedforward_layernorm.weight").values) w = 60000;
  save(m);
  EXPECT_TRUE(warnings(options(6), "beyond what f16 holds").empty());
  for (float& w : m.at("model.layers.1.pre_feedforward_layernorm.weight").values) w = 1000;
  save(m);
  EXPECT_EQ(warnings(options(6), "beyond what f16 holds").size(), 1u);
}

// A head that makes large differences of small ones.
TEST_F(NumbersTold, AnOutputThatIsOfLittleUseIsToldAndAGoodOneIsNot) {
  test::TinyModel m = tiny();
  for (float& w : m.at("lm_head.weight").values) w *= 100;
  save(m);
  QuantizeOptions few = options(3), many = options(8);
  few.head_bits = 2;
  many.head_bits = 8;
  const std::vector<std::string> told = warnings(few, "of little use");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("nats per token"), std::string::npos) << told[0];
  EXPECT_TRUE(warnings(many, "of little use").empty());
}

}  // namespace
}  // namespace bw
