// What plan() finds and foretells, and that jobs begin with the same checks.
#include <cmath>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include "bitwright/bitwright.h"
#include "io/json.h"
#include "support/errors.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

const fs::path kTokenizer = fs::path(BW_FIXTURES) / "models" / "llama" / "tokenizer.json";  // 288 tokens

class Plan : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(text_);
    for (int i = 0; i < 100; ++i) text << "Night " << i << ": the lamp turns, and the ships keep clear of the rocks.\n";
  }

  static test::TinyModel tiny(test::TinySizes sizes = {}, bool head = false) {
    if (sizes.vocab == 96) sizes.vocab = 288;
    return test::make_tiny_model("LlamaForCausalLM", sizes, head);
  }
  void save(const test::TinyModel& m, io::TensorType type = io::TensorType::kF16) {
    m.save(model_, type);
    fs::copy_file(kTokenizer, model_ / "tokenizer.json", fs::copy_options::overwrite_existing);
  }
  PlanOptions options() const {
    PlanOptions o;
    o.model = model_;
    o.calibration = {{text_}, 6, 40, 1};
    return o;
  }
  PlanOptions options(double bpw) const {
    PlanOptions o = options();
    o.output = out_;
    o.bpw = {bpw};
    return o;
  }
  QuantizeOptions quantize_options(double bpw) const {
    QuantizeOptions o;
    o.model = model_;
    o.output = out_;
    o.bpw = {bpw};
    o.calibration = {{text_}, 6, 40, 1};
    return o;
  }

  // The result has exactly these findings: of each its severity and words that it must hold.
  struct Expected {
    Finding::Severity severity;
    ErrorCode code;
    std::vector<std::string> words;
  };
  static Expected error(ErrorCode code, std::vector<std::string> words) {
    return {Finding::Severity::kError, code, std::move(words)};
  }
  static Expected warning(std::vector<std::string> words) {
    return {Finding::Severity::kWarning, ErrorCode::kModel, std::move(words)};
  }
  static void expect_findings(const PlanResult& r, const std::vector<Expected>& expected) {
    std::string all;
    for (const Finding& f : r.findings) all += f.where + ": " + f.what + "; " + f.advice + "\n";
    ASSERT_EQ(r.findings.size(), expected.size()) << all;
    for (size_t i = 0; i < expected.size(); ++i) {
      const Finding& f = r.findings[i];
      EXPECT_EQ(f.severity, expected[i].severity) << all;
      EXPECT_EQ(f.code, expected[i].code) << all;
      const std::string text = f.where + ": " + f.what + "; " + f.advice;
      for (const std::string& word : expected[i].words)
        EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
    }
  }

  test::TempDir dir_;
  fs::path model_ = dir_ / "model", text_ = dir_ / "text.txt", out_ = dir_ / "out";
};

TEST_F(Plan, ASoundModelIsDescribedAndNothingIsWritten) {
  save(tiny());
  const PlanResult r = plan(options(5));
  expect_findings(r, {});
  EXPECT_TRUE(r.checked);
  EXPECT_FALSE(r.has_errors());
  EXPECT_EQ(r.architecture, "LlamaForCausalLM");
  EXPECT_EQ(r.layers, 2u);
  EXPECT_EQ(r.hidden, 64u);
  EXPECT_EQ(r.vocabulary, 288u);
  EXPECT_TRUE(r.tied);
  EXPECT_EQ(r.tensor_bytes, fs::file_size(model_ / "model.safetensors"));
  EXPECT_EQ(r.tokens, 240u);
  EXPECT_EQ(r.plain_share, 0);
  EXPECT_LT(r.smallest_bytes, r.largest_bytes);
  EXPECT_GT(r.memory_there, 0u);
  EXPECT_GT(r.disk_there, 0u);
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_.path()), fs::directory_iterator()), 2);
}

TEST_F(Plan, TheReachIsThatOfMeasure) {
  save(tiny());
  const PlanResult r = plan(options());
  MeasureOptions m;
  m.model = model_;
  m.output = dir_ / "m.json";
  m.calibration = options().calibration;
  const MeasureResult measured = measure(m);
  EXPECT_EQ(r.smallest_bpw, measured.smallest_bpw);
  EXPECT_EQ(r.largest_bpw, measured.largest_bpw);
}

TEST_F(Plan, TargetsTakeNoMoreThanForetold) {
  test::TinySizes sizes;
  sizes.layers = 4;
  for (const bool head : {false, true}) {
    save(tiny(sizes, head));
    for (const std::optional<int> head_bits : {std::optional<int>(6), std::optional<int>(16), std::optional<int>()}) {
      PlanOptions o = options(4.5);
      o.head_bits = head_bits;
      const PlanResult r = plan(o);
      ASSERT_EQ(r.targets.size(), 1u);
      QuantizeOptions q = quantize_options(4.5);
      q.head_bits = head_bits;
      q.overwrite = true;
      q.effort = Effort::kFast;
      const uint64_t written = quantize(q).at(0).written_bytes;
      EXPECT_LE(written, r.targets[0].bytes);
      EXPECT_GE(static_cast<double>(written), 0.97 * static_cast<double>(r.targets[0].bytes));
      EXPECT_GE(r.disk_bytes, 2 * r.targets[0].bytes);
    }
    fs::remove_all(model_);
  }
}

TEST_F(Plan, AWrongModelHasAllItsErrorsListedAndNoFigures) {
  test::TinyModel m = tiny();
  m.erase("model.norm.weight");
  m.at("model.layers.1.mlp.down_proj.weight").values[0] = NAN;
  m.at("model.layers.0.mlp.down_proj.weight").shape = {96, 64};
  m.add("foo.bar", {3});
  save(m);
  const PlanResult r = plan(options(5));
  EXPECT_FALSE(r.checked);
  expect_findings(r, {error(ErrorCode::kModel, {"model.layers.0.mlp.down_proj.weight", "expected shape"}),
                      error(ErrorCode::kModel, {"model.norm.weight is missing"}),
                      error(ErrorCode::kModel, {"model.layers.1.mlp.down_proj.weight", "row 0, column 0", "nan"}),
                      warning({"foo.bar"})});
}

TEST_F(Plan, WhatIsAskedForIsCheckedInOneGo) {
  save(tiny());
  std::ofstream(text_) << "too short";
  PlanOptions o = options();
  o.bpw = {1.9, 5, 99};
  o.output = model_;
  fs::remove(model_ / "tokenizer.json");
  std::ofstream(model_ / "tokenizer.model") << "x";
  expect_findings(plan(o), {error(ErrorCode::kUsage, {"--bpw 1.9", " to "}), error(ErrorCode::kUsage, {"--bpw 99"}),
                            error(ErrorCode::kModel, {"tokenizer.json", "only tokenizer.model", "convert it"}),
                            error(ErrorCode::kUsage, {"the output is the model directory"})});
  fs::copy_file(kTokenizer, model_ / "tokenizer.json");
  expect_findings(plan(options(5)), {error(ErrorCode::kUsage, {"text.txt", "6 rows of 40 tokens", "found"})});
}

TEST_F(Plan, OptionsThatMakeNoSenseForAnyModelAreThrown) {
  save(tiny());
  PlanOptions o = options(5);
  o.head_bits = 7;
  expect_error([&] { plan(o); }, ErrorCode::kUsage, {"--head-bits 7"});
  o = options(5);
  o.engine.device = "abacus";
  expect_error([&] { plan(o); }, ErrorCode::kUsage, {"abacus"});
}

TEST_F(Plan, ASizeBelowTheLeastIsRefusedWithTheRange) {
  save(tiny());
  PlanOptions o = options();
  o.size = 10000;
  expect_findings(plan(o), {error(ErrorCode::kUsage, {"--size 10000", " to "})});
  o.size = 120'000;
  const PlanResult r = plan(o);
  expect_findings(r, {});
  ASSERT_EQ(r.targets.size(), 1u);
  EXPECT_EQ(r.targets[0].bytes, 120'000u);
}

TEST_F(Plan, ASizeBeyondTheMostNeedsNoMoreThanTheMost) {
  save(tiny());
  PlanOptions o = options(0);
  o.bpw = {};
  o.size = 100'000'000'000'000;
  const PlanResult r = plan(o);
  expect_findings(r, {});
  ASSERT_EQ(r.targets.size(), 1u);
  EXPECT_EQ(r.targets[0].bytes, r.largest_bytes);
  EXPECT_LT(r.disk_bytes, 64u << 20);
}

TEST_F(Plan, AnMlpThatIsNoMultipleOf32IsToldWithItsEffectOnTheReach) {
  test::TinySizes sizes;
  sizes.intermediate = 172;
  save(tiny(sizes));
  const PlanResult r = plan(options());
  expect_findings(r, {warning({"model.layers.0.mlp.down_proj: 172 inputs", "2 MLP blocks stay in f16", "73 %"})});
  EXPECT_NEAR(r.plain_share, 0.729, 0.001);
  EXPECT_GT(r.smallest_bpw, 0.729 * 16);
  EXPECT_LT(r.largest_bpw, 16);
}

TEST_F(Plan, AHiddenSizeThatIsNoMultipleOf32LeavesNothingToQuantize) {
  test::TinySizes sizes;
  sizes.hidden = 72;
  save(tiny(sizes, true));
  const PlanResult r = plan(options());
  expect_findings(r,
                  {warning({"mlp.gate_proj: 72 inputs", "MLP"}), warning({"self_attn.q_proj: 72 inputs", "attention"}),
                   warning({"lm_head: 72 inputs", "the head stays in f16"})});
  EXPECT_EQ(r.plain_share, 1);
  EXPECT_EQ(r.smallest_bpw, 16);
  EXPECT_EQ(r.largest_bpw, 16);
}

TEST_F(Plan, AVocabularyThatIsNoMultipleOf32IsPadded) {
  test::TinySizes sizes;
  sizes.vocab = 289;
  save(tiny(sizes, true));
  expect_findings(plan(options(5)), {});
}

TEST_F(Plan, FewerRowsThanTokensAreAWarningUntilTextHoldsOne) {
  test::TinySizes sizes;
  sizes.vocab = 287;
  save(tiny(sizes));
  PlanOptions o = options(5);
  o.calibration.files.clear();  // written by the model, which cannot write what it has no row for
  expect_findings(plan(o), {warning({"tokenizer.json", "1 token is beyond the 287 rows", "(287)", "refused"})});
  sizes.vocab = 97;
  save(tiny(sizes));
  expect_findings(plan(options(5)), {error(ErrorCode::kModel, {"text.txt", "gives id", "97 embedding rows"}),
                                     warning({"191 tokens are beyond the 97 rows", ", ..."})});
}

TEST_F(Plan, FewerTokensThanRowsAreNormal) {
  test::TinySizes sizes;
  sizes.vocab = 320;
  save(tiny(sizes));
  expect_findings(plan(options(5)), {});
}

TEST_F(Plan, CalibrationTextIsReadWhereItIsGiven) {
  save(tiny());
  const auto with_file = [&](const std::string& name, const std::string& content) {
    std::ofstream(dir_ / name, std::ios::binary) << content;
    PlanOptions o = options();
    o.calibration.files = {dir_ / name};
    return plan(o);
  };
  expect_findings(with_file("empty.txt", ""), {error(ErrorCode::kModel, {"empty.txt", "empty"})});
  std::string rows;
  for (int i = 1; i < 7; ++i) rows += "{\"text\": \"fine\"}\n";
  const PlanResult bad = with_file("bad.jsonl", rows + "{\"text\": \n");
  expect_findings(bad, {error(ErrorCode::kModel, {"bad.jsonl", "7"})});
  PlanOptions absent = options();
  absent.calibration.files = {dir_ / "absent.txt"};
  expect_findings(plan(absent), {error(ErrorCode::kIo, {"absent.txt"})});
}

TEST_F(Plan, WhatAJobWouldWarnOfIsToldBefore) {
  save(tiny());
  std::ofstream(model_ / "chat_template.jinja") << "{% if %}";
  PlanOptions o = options();
  o.calibration.rows = 2;
  o.calibration.length = 300;
  expect_findings(plan(o), {warning({"300 tokens", "256 positions"}), warning({"chat template is not used"})});
  o.calibration.files.clear();
  expect_findings(plan(o), {warning({"300 tokens", "256 positions"}), warning({"chat template is not used"})});
}

TEST_F(Plan, ADanglingSideFileStopsAJobButNotTheRestOfThePlan) {
  save(tiny());
  fs::create_symlink("../blobs/absent", model_ / "generation_config.json");
  const PlanResult r = plan(options(5));
  expect_findings(r, {error(ErrorCode::kModel, {"generation_config.json", "link", "download"})});
  EXPECT_GT(r.smallest_bpw, 0);
  EXPECT_GT(r.memory_bytes, 0u);
  expect_findings(plan(options()), {error(ErrorCode::kModel, {"generation_config.json"})});
}

TEST_F(Plan, AWeightBeyondHalfIsRefusedWhereItWouldBeStoredAsOne) {
  test::TinyModel m = tiny();
  m.at("model.layers.1.input_layernorm.weight").values[2] = 1e5f;
  m.at("model.layers.1.mlp.up_proj.weight").values[2] = 1e5f;  // has scales of its own
  save(m, io::TensorType::kF32);
  expect_findings(plan(options(5)), {error(ErrorCode::kModel, {"model.layers.1.input_layernorm.weight", "f16"})});
  expect_findings(plan(options()), {});
}

TEST_F(Plan, MoreMemoryAndDiskThanThereIsIsSaidWithTheFigures) {
  save(tiny());
  PlanOptions o = options();
  o.output = dir_ / "m.json";
  o.calibration = {{}, 4000000, 1000, 1};
  const PlanResult r = plan(o);
  EXPECT_GT(r.memory_bytes, r.memory_there);
  expect_findings(r, {error(ErrorCode::kIo, {"m.json", "3.6 TB are needed", "are free", "-o"}),
                      warning({"of memory are needed", "may be used", "--calib"}), warning({"1000 tokens"})});
}

TEST_F(Plan, ABoundOfMemoryIsKeptOrTheJobIsRefusedWithWhatFits) {
  save(tiny());
  PlanOptions o = options(5);
  o.calibration.rows = 64;
  const uint64_t needed = plan(o).memory_bytes;
  o.engine.memory = needed;
  expect_findings(plan(o), {});
  o.engine.memory = needed - 100000;
  const PlanResult r = plan(o);
  expect_findings(r, {error(ErrorCode::kIo, {"--memory", "of memory are needed", "may be used", "--calib-rows"})});
  const std::string words = "--calib-rows ";
  const std::string& advice = r.findings[0].advice;
  o.calibration.rows = std::stoul(advice.substr(advice.find(words) + words.size()));
  EXPECT_LT(o.calibration.rows, 64u);
  expect_findings(plan(o), {});
  ++o.calibration.rows;
  EXPECT_TRUE(plan(o).has_errors());
  QuantizeOptions q = quantize_options(5);
  q.engine.memory = 1000;
  expect_error([&] { quantize(q); }, ErrorCode::kIo, {"--memory", "shorter rows"});
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(Plan, AJobBeginsWithTheSameChecks) {
  test::TinyModel m = tiny();
  m.at("model.layers.1.mlp.up_proj.weight").values[0] = NAN;  // in the first row, which is sampled
  save(m);
  bool worked = false;
  const auto note = [&](const ProgressEvent& e) { worked |= e.kind == ProgressEvent::Kind::kProgress; };
  QuantizeOptions q = quantize_options(5);
  q.engine.progress = note;
  expect_error([&] { quantize(q); }, ErrorCode::kModel, {"model.layers.1.mlp.up_proj.weight: row 0, column 0 is nan"});
  MeasureOptions measuring;
  measuring.model = model_;
  measuring.output = dir_ / "m.json";
  measuring.calibration = q.calibration;
  measuring.engine = q.engine;
  expect_error([&] { measure(measuring); }, ErrorCode::kModel, {"model.layers.1.mlp.up_proj.weight"});
  save(tiny());
  fs::remove(model_ / "tokenizer.json");
  expect_error([&] { measure(measuring); }, ErrorCode::kModel, {"model: there is no tokenizer.json"});
  EXPECT_FALSE(worked);
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_FALSE(fs::exists(dir_ / "m.json"));
}

TEST_F(Plan, WarningsOfAJobAreToldOnce) {
  test::TinySizes sizes;
  sizes.vocab = 287;
  test::TinyModel m = tiny(sizes);
  m.add("foo.bar", {3});
  save(m);
  std::map<std::string, int> told;
  QuantizeOptions q = quantize_options(5);
  q.engine.progress = [&](const ProgressEvent& e) {
    if (e.kind == ProgressEvent::Kind::kWarning) ++told[e.text];
  };
  quantize(q);
  EXPECT_EQ(told.size(), 2u);
  for (const auto& [text, times] : told) EXPECT_EQ(times, 1) << text;
}

}  // namespace
}  // namespace bw
