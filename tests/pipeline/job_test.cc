// The whole job on tiny models of every architecture: measure, allocate, quantize, write, read back.
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "bitwright/bitwright.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "support/files.h"
#include "support/temp_dir.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::contents;
using test::read_bytes;

const fs::path kModels = fs::path(BW_FIXTURES) / "models";

// Ordinary prose, long enough for a few short rows of a byte-level tokenizer.
std::string sample_text() {
  std::string text;
  for (int i = 0; text.size() < 6000; ++i) {
    text += "Chapter " + std::to_string(i) +
            ". The keeper of the lighthouse counted the ships, wrote their names into a book and went "
            "up the stairs again; it was " +
            std::to_string(7 * i % 24) + " o'clock and the wind had turned to the north.\n";
  }
  return text;
}

class Job : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { std::ofstream(text_) << sample_text(); }

  QuantizeOptions options(double bpw) const {
    QuantizeOptions o;
    o.model = kModels / GetParam();
    o.output = dir_.path() / "out";
    o.bpw = {bpw};
    o.calibration = {{text_}, 8, 64, 1};
    o.engine.threads = 2;
    return o;
  }

  EvaluateResult evaluate_output(const fs::path& output) const {
    EvaluateOptions o;
    o.model = output;
    o.reference = kModels / GetParam();
    o.text = text_;
    o.rows = 4;
    o.length = 64;
    o.engine.arithmetic = Arithmetic::kF32;
    return evaluate(o);
  }

  test::TempDir dir_;
  fs::path text_ = dir_.path() / "text.txt";
};

TEST_P(Job, WritesWhatWasPlannedWithinTheTarget) {
  const QuantizeResult r = quantize(options(5.5)).at(0);
  EXPECT_EQ(r.planned_bytes, r.written_bytes);
  uint64_t bytes = 0;
  for (const auto& [name, data] : contents(r.output)) bytes += name == "README.md" ? 0 : data.size();
  EXPECT_EQ(bytes, r.written_bytes);
  const InspectResult seen = inspect(r.output);
  EXPECT_TRUE(seen.quantized);
  EXPECT_LE(seen.bpw_linears, 5.5);
  EXPECT_LE(r.bpw_linears, 5.5);
  EXPECT_GE(r.bpw_linears, 5.5 * 0.98);  // steps are coarse on linears of 64 rows
  EXPECT_FALSE(fs::exists(dir_.path() / "out.partial"));
}

TEST_P(Job, TheResultIsCloseToTheOriginalAndCloserWithMoreBits) {
  const EvaluateResult low = evaluate_output(quantize(options(4.0)).at(0).output);
  QuantizeOptions o = options(8.0);
  o.output = dir_.path() / "out8";
  o.head_bits = 8;
  const EvaluateResult high = evaluate_output(quantize(o).at(0).output);
  EXPECT_GT(low.kld.value, high.kld.value);
  EXPECT_LT(high.kld.value, 0.01);
  EXPECT_GT(high.top1.value, 0.9);
  EXPECT_EQ(high.tokens, 4u * 63u);
}

TEST_P(Job, TheSameBytesAtAnyNumberOfThreads) {
  QuantizeOptions o = options(4.5);
  o.engine.threads = 1;
  quantize(o);
  const auto one = contents(o.output);
  for (const size_t threads : {2, 3}) {
    o.output = dir_.path() / ("out" + std::to_string(threads));
    o.engine.threads = threads;
    quantize(o);
    EXPECT_EQ(contents(o.output), one) << threads << " threads";
  }
}

TEST_P(Job, TheConfigIsOneThatTheLoaderReads) {
  const QuantizeResult r = quantize(options(5.0)).at(0);
  const io::Json config = io::load_json(r.output / "config.json");
  EXPECT_EQ(config["architectures"].size(), 1u);
  EXPECT_TRUE(config.contains("rope_theta"));
  EXPECT_EQ(config["tie_word_embeddings"], false);
  EXPECT_EQ(config["quantization_config"]["quant_method"], "exl2");
  EXPECT_EQ(config["quantization_config"]["bits"], 5.0);
  EXPECT_EQ(config["quantization_config"]["head_bits"], 6);
  EXPECT_EQ(config["quantization_config"]["calibration"]["rows"], 8);
  EXPECT_TRUE(fs::exists(r.output / "tokenizer.json"));
  EXPECT_FALSE(fs::exists(r.output / "model.safetensors.index.json"));
}

TEST_P(Job, AMeasurementServesSeveralTargetsAndGivesTheSameBytes) {
  MeasureOptions m;
  m.model = kModels / GetParam();
  m.output = dir_.path() / "measurement.json";
  m.calibration = {{text_}, 8, 64, 1};
  const MeasureResult measured = measure(m);
  EXPECT_GT(measured.candidates, measured.linears * 18);
  QuantizeOptions direct = options(4.5);
  quantize(direct);
  QuantizeOptions reused = options(4.5);
  reused.output = dir_.path() / "several";
  reused.bpw = {4.5, 6.25};
  reused.measurement = m.output;
  const std::vector<QuantizeResult> results = quantize(reused);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[1].output.filename(), "several-6.25bpw");
  EXPECT_GT(results[1].written_bytes, results[0].written_bytes);
  EXPECT_EQ(contents(results[0].output), contents(direct.output));
}

TEST_P(Job, ASizeIsKeptToTheByteOrTwo) {
  const QuantizeResult by_bpw = quantize(options(4.0)).at(0);
  QuantizeOptions o = options(0);
  o.bpw.clear();
  o.output = dir_.path() / "sized";
  o.size = by_bpw.written_bytes + 3000;
  const QuantizeResult r = quantize(o).at(0);
  EXPECT_LE(r.written_bytes, *o.size);
  EXPECT_GE(static_cast<double>(r.written_bytes), 0.99 * static_cast<double>(*o.size));
  EXPECT_EQ(r.planned_bytes, r.written_bytes);
}

INSTANTIATE_TEST_SUITE_P(Architectures, Job,
                         testing::Values("llama", "llama-bias", "qwen2-window", "gemma3", "gemma3-softcap"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return name;
                         });

class LlamaJob : public Job {};

TEST_P(LlamaJob, TheModelWritesItsOwnCalibrationText) {
  QuantizeOptions o = options(5.0);
  o.calibration.files.clear();
  o.calibration.rows = 13;
  const QuantizeResult first = quantize(o).at(0);
  o.output = dir_.path() / "again";
  o.engine.threads = 1;
  const QuantizeResult second = quantize(o).at(0);
  EXPECT_EQ(contents(first.output), contents(second.output));
  const io::Json config = io::load_json(first.output / "config.json");
  EXPECT_EQ(config["quantization_config"]["calibration"]["dataset"], "self-generated");
}

TEST_P(LlamaJob, ShardsHoldNoMoreThanAsked) {
  QuantizeOptions o = options(5.0);
  o.shard_bytes = 40000;
  const QuantizeResult r = quantize(o).at(0);
  size_t shards = 0;
  for (const auto& [name, data] : contents(r.output)) {
    if (!name.ends_with(".safetensors")) continue;
    ++shards;
    EXPECT_LE(data.size(), 40000u + 8192u) << name;  // the limit is on data; a header comes on top
  }
  EXPECT_GT(shards, 1u);
  EXPECT_EQ(r.planned_bytes, r.written_bytes);
  EXPECT_LT(evaluate_output(r.output).kld.value, 1.0);
}

TEST_P(LlamaJob, AnUntouchedHeadStaysTied) {
  QuantizeOptions o = options(5.0);
  o.head_bits = 16;
  const QuantizeResult r = quantize(o).at(0);
  const InspectResult seen = inspect(r.output);
  EXPECT_EQ(seen.tied, inspect(o.model).tied);
  EXPECT_EQ(seen.bpw_head, 16);
  EXPECT_EQ(io::load_json(r.output / "config.json")["tie_word_embeddings"], seen.tied);
}

TEST_P(LlamaJob, GenerateWritesOnFromOriginalAndResult) {
  QuantizeOptions o = options(8.0);
  o.head_bits = 8;
  const QuantizeResult r = quantize(o).at(0);
  GenerateOptions g;
  g.model = r.output;
  g.prompt = "The keeper";
  g.max_tokens = 12;
  std::string streamed;
  g.on_text = [&](std::string_view piece) { streamed += piece; };
  const GenerateResult out = generate(g);
  EXPECT_EQ(streamed, out.text);
  EXPECT_LE(out.tokens, 12u);
  g.on_text = nullptr;
  EXPECT_EQ(generate(g).text, out.text);
}

INSTANTIATE_TEST_SUITE_P(Models, LlamaJob, testing::Values("llama"));

}  // namespace
}  // namespace bw
