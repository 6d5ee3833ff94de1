// Where a run must end: values that are no numbers, options that make no sense, and the caller's wish.
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "bitwright/bitwright.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

class Limits : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(text_);
    for (int i = 0; i < 100; ++i) text << "Day " << i << ": the ice holds, and the children cross the bay to school.\n";
    save(tiny(), good_);
    // The head's weights are numbers, its products overflow.
    test::TinyModel loud = tiny();
    for (float& w : loud.at("lm_head.weight").values) w = std::copysign(3e38f, w);
    save(loud, loud_);
  }

  static test::TinyModel tiny() {
    test::TinySizes sizes;
    sizes.vocab = 288;
    return test::make_tiny_model("LlamaForCausalLM", sizes, true);
  }
  static void save(const test::TinyModel& m, const fs::path& to) {
    m.save(to, io::TensorType::kF32);
    fs::copy_file(fs::path(BW_FIXTURES) / "models" / "llama" / "tokenizer.json", to / "tokenizer.json");
  }
  EvaluateResult compare(const fs::path& model, std::optional<fs::path> reference) const {
    return evaluate({model, std::move(reference), text_, 4, 40, {}});
  }
  GenerateOptions generation(const fs::path& model) const {
    GenerateOptions g;
    g.model = model;
    g.prompt = "The ice";
    return g;
  }

  test::TempDir dir_;
  fs::path good_ = dir_ / "good", loud_ = dir_ / "loud", text_ = dir_ / "text.txt";
};

TEST_F(Limits, LogitsThatAreNoNumbersEndAnEvaluation) {
  expect_error([&] { compare(loud_, std::nullopt); }, ErrorCode::kNumeric, {"row 0, position 0", "loud", "not finite"});
  expect_error([&] { compare(loud_, good_); }, ErrorCode::kNumeric, {"row 0, position 0", "loud", "not finite"});
  expect_error([&] { compare(good_, loud_); }, ErrorCode::kNumeric, {"row 0, position 0", "loud", "not finite"});
}

TEST_F(Limits, TheFirstPositionThatIsNoNumberIsNamed) {
  // One token's embedding is infinite: all is well up to its place in the second row. (Attention takes keys in blocks,
  // and a masked infinity spoils its block: the place is at the beginning of one.)
  test::TinyModel m = tiny();
  const fs::path model = dir_ / "late";
  for (size_t i = 0; i < 64; ++i) m.at("model.embed_tokens.weight").values[64 * 2 + i] = INFINITY;  // '#'
  save(m, model);
  std::ofstream(text_) << std::string(199 + 127, 'x') << "#" << std::string(71, 'x');
  EvaluateOptions o{model, std::nullopt, text_, 2, 200, {}};
  expect_error([&] { evaluate(o); }, ErrorCode::kNumeric, {"row 1, position 128", "late"});
  o.reference = good_;
  expect_error([&] { evaluate(o); }, ErrorCode::kNumeric, {"row 1, position 128", "late"});
}

TEST_F(Limits, ActivationsThatAreNoNumbersEndAMeasurement) {
  // An embedding that is no number, in a row that no sample looks at, and finite weights whose products overflow. Once,
  // the order of a Hessian's inputs was left undefined then, and used.
  test::TinyModel nan = tiny(), large = tiny();
  for (size_t i = 0; i < 64; ++i) nan.at("model.embed_tokens.weight").values[64 * 25 + i] = NAN;  // ':'
  for (float& w : large.at("model.layers.0.mlp.down_proj.weight").values) w = std::copysign(1e38f, w);
  for (const auto& [name, model] : {std::pair{"nan", nan}, {"large", large}}) {
    save(model, dir_ / name);
    for (const char* device : {"cpu", "sim"}) {
      MeasureOptions o;
      o.model = dir_ / name;
      o.output = dir_ / "m.json";
      o.calibration = {{text_}, 4, 32, 1};
      o.engine.device = device;
      expect_error([&] { measure(o); }, ErrorCode::kNumeric, {"layer", "Hessian is not finite"});
      QuantizeOptions q;
      q.model = o.model;
      q.output = dir_ / "out";
      q.bpw = {4};
      q.calibration = o.calibration;
      q.engine = o.engine;
      EXPECT_THROW(quantize(q), Error);
      EXPECT_FALSE(fs::exists(dir_ / "out.partial"));
    }
  }
}

TEST_F(Limits, StoredFloatsHave32Bits) {
  const EvaluateResult r = compare(good_, good_);
  EXPECT_EQ(r.bpw_linears, 32);
  EXPECT_EQ(r.bpw_head, 32);
  EXPECT_EQ(r.reference_bpw_linears, 32);
  EXPECT_EQ(r.reference_bpw_head, 32);
  EXPECT_EQ(inspect(good_).bpw_linears, 32);
}

TEST_F(Limits, LogitsThatAreNoNumbersEndAGeneration) {
  for (const float temperature : {0.0f, 1.0f}) {
    GenerateOptions g = generation(loud_);
    g.temperature = temperature;
    expect_error([&] { generate(g); }, ErrorCode::kNumeric, {"logit of token"});
  }
  MeasureOptions m;
  m.model = loud_;
  m.output = dir_ / "m.json";
  m.calibration = {{}, 2, 8, 1};
  expect_error([&] { measure(m); }, ErrorCode::kNumeric, {"logit of token"});
  EXPECT_FALSE(fs::exists(m.output));
}

TEST_F(Limits, SamplingOptionsThatMakeNoSenseAreRefused) {
  const auto refuse = [&](auto change, const char* option) {
    GenerateOptions g = generation(good_);
    change(g);
    expect_error([&] { generate(g); }, ErrorCode::kUsage, {option});
  };
  for (const size_t n : {(size_t{1} << 20) + 1, SIZE_MAX}) {
    refuse([&](GenerateOptions& g) { g.max_tokens = n; }, "--max-tokens");
  }
  for (const float bad : {-0.1f, NAN, INFINITY, -INFINITY}) {
    refuse([&](GenerateOptions& g) { g.temperature = bad; }, "--temperature");
  }
  for (const float bad : {0.0f, -1.0f, 1.5f, NAN}) refuse([&](GenerateOptions& g) { g.top_p = bad; }, "--top-p");
  for (const float bad : {-0.1f, 1.5f, NAN}) refuse([&](GenerateOptions& g) { g.min_p = bad; }, "--min-p");
  refuse([&](GenerateOptions& g) { g.system = "Be brief."; }, "--system");
  GenerateOptions none = generation(good_);
  none.max_tokens = 0;
  EXPECT_EQ(generate(none).tokens, 0u);
}

TEST_F(Limits, WhatIsStreamedIsTheText) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    GenerateOptions g = generation(good_);
    g.max_tokens = 60;
    g.temperature = 3;  // mostly bytes that make no characters
    g.seed = seed;
    std::string streamed;
    g.on_text = [&](std::string_view piece) {
      EXPECT_FALSE(piece.empty());
      EXPECT_FALSE(find_invalid_utf8(piece));
      streamed += piece;
    };
    const GenerateResult r = generate(g);
    EXPECT_EQ(streamed, r.text) << seed;
    EXPECT_FALSE(r.text.empty()) << seed;
  }
}

TEST_F(Limits, StatesThatMemoryHasNoRoomForGoToDiskAndTheOutputIsTheSame) {
  QuantizeOptions q;
  q.model = good_;
  q.output = dir_ / "free";
  q.bpw = {5};
  std::ofstream text(text_);
  for (int i = 0; i < 12000; ++i) text << "Day " << i << ": ice.\n";
  text.close();
  q.calibration = {{text_}, 400, 40, 1};  // four batches
  q.effort = Effort::kFast;
  quantize(q);
  PlanOptions p;
  p.model = q.model;
  p.output = dir_ / "bound";
  p.bpw = q.bpw;
  p.calibration = q.calibration;
  const PlanResult free = plan(p);
  p.engine.memory = q.engine.memory = free.memory_bytes - 1;
  const PlanResult bound = plan(p);
  EXPECT_LT(bound.memory_bytes, free.memory_bytes);
  EXPECT_GT(bound.disk_bytes, free.disk_bytes);
  EXPECT_FALSE(bound.has_errors());
  std::string warnings;
  q.output = p.output;
  q.engine.progress = [&](const ProgressEvent& e) {
    if (e.kind == ProgressEvent::Kind::kWarning) warnings += e.text + "\n";
  };
  quantize(q);
  EXPECT_NE(warnings.find("states of all rows are kept in the work folder"), std::string::npos) << warnings;
  EXPECT_EQ(test::contents(dir_ / "bound"), test::contents(dir_ / "free"));
  EXPECT_FALSE(fs::exists(dir_ / "bound.work"));
}

TEST_F(Limits, TheCallerMayEndARunAtAnyTime) {
  // Asked for the n-th time, the answer is yes; in the end the run is over before.
  int left = 0, asked = 0;
  QuantizeOptions q;
  q.model = good_;
  q.output = dir_ / "out";
  q.bpw = {6};
  q.calibration = {{}, 2, 6, 1};
  q.work.restart = true;
  q.engine.interrupted = [&] { return ++asked > left; };
  for (bool done = false; !done; ++left) {
    asked = 0;
    try {
      quantize(q);
      done = true;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInterrupted);
      EXPECT_NE(std::string(e.what()).find("the same command"), std::string::npos);
      EXPECT_FALSE(fs::exists(dir_ / "out"));
      EXPECT_FALSE(fs::exists(dir_ / "out.partial"));
    }
  }
  EXPECT_TRUE(fs::exists(dir_ / "out"));
  EXPECT_FALSE(fs::exists(dir_ / "out.work"));
  EXPECT_GT(left, 10);  // 6 steps of calibration, 2 layers measured, 2 quantized, the head
  EvaluateOptions e{good_, std::nullopt, text_, 4, 40, {}};
  e.engine.interrupted = [] { return true; };
  expect_error([&] { evaluate(e); }, ErrorCode::kInterrupted, {"interrupted"});
  GenerateOptions g = generation(good_);
  g.engine.interrupted = [] { return true; };
  expect_error([&] { generate(g); }, ErrorCode::kInterrupted, {"interrupted"});
}

}  // namespace
}  // namespace bw
