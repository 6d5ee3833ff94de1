// Inspection of a model, a file, a measurement and a work folder.
#include <filesystem>
#include <fstream>
#include <map>
#include <span>

#include <gtest/gtest.h>

#include "bitwright/bitwright.h"
#include "pipeline/inspect.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/stopped.h"
#include "support/temp_dir.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using State = JobStep::State;

const fs::path kModel = fs::path(BW_FIXTURES) / "models" / "llama";

class Inspect : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(text_);
    for (int i = 0; i < 100; ++i) text << "Line " << i * i << " of the log says so. ";
  }
  QuantizeOptions options() {
    QuantizeOptions o;
    o.model = kModel;
    o.output = dir_ / "out";
    o.bpw = {4.5};
    o.calibration = {{text_}, 4, 32, 1};
    o.work.checkpoint_seconds = 0;
    return o;
  }
  void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

  test::TempDir dir_;
  fs::path text_ = dir_ / "text.txt";
};

TEST_F(Inspect, AModelAndItsFileTellTheSameOfEachLinear) {
  quantize(options());
  for (const fs::path& model : {kModel, dir_ / "out"}) {
    const auto seen = std::get<InspectResult>(inspect_path(model));
    const auto file = std::get<FileReport>(inspect_path(model / "model.safetensors"));
    EXPECT_EQ(file.file_bytes, fs::file_size(model / "model.safetensors"));
    EXPECT_LT(file.tensor_bytes, file.file_bytes);
    std::map<std::string, PartReport> parts;
    for (const PartReport& p : file.parts) parts[p.key] = p;
    ASSERT_EQ(seen.linears.size(), 2 * 7 + 1u);
    double bits = 0, weights = 0;
    for (const PartReport& l : seen.linears) {
      if (l.module == "lm_head" && seen.tied) continue;
      const PartReport& p = parts.at(l.key);
      EXPECT_EQ(p.layer, l.layer) << l.key;
      EXPECT_EQ(p.module, l.module);
      EXPECT_EQ(p.layout, l.layout) << l.key;
      EXPECT_EQ(p.bytes, l.bytes) << l.key;
      EXPECT_EQ(p.in, l.in) << l.key;
      EXPECT_EQ(p.out, l.out) << l.key;
      EXPECT_DOUBLE_EQ(p.bpw, l.bpw);
      if (!l.layer) continue;
      bits += 8.0 * static_cast<double>(l.bytes);
      weights += static_cast<double>(l.in * l.out);
    }
    EXPECT_DOUBLE_EQ(seen.bpw_linears, bits / weights);
    EXPECT_EQ(parts.at(seen.embedding.key).bytes, seen.embedding.bytes);
    EXPECT_EQ(seen.embedding.out, 288u);
    const double head = 64.0 * 288;
    EXPECT_NEAR(seen.bpw_linears_and_head, (bits + seen.bpw_head * head) / (weights + head), 1e-9);
    EXPECT_TRUE(parts.contains("model.norm"));
    EXPECT_EQ(parts.at("model.norm").out, 1u);
  }
}

TEST_F(Inspect, AMeasurementShowsWhatItHolds) {
  MeasureOptions m;
  m.model = kModel;
  m.output = dir_ / "m.json";
  m.calibration = options().calibration;
  const MeasureResult r = measure(m);
  const auto seen = std::get<MeasurementReport>(inspect_path(m.output));
  EXPECT_FALSE(seen.foreign);
  EXPECT_EQ(seen.rows, 4u);
  EXPECT_EQ(seen.smallest_bpw, r.smallest_bpw);
  EXPECT_EQ(seen.largest_bpw, r.largest_bpw);
  ASSERT_EQ(seen.parts.size(), r.linears + 1);
  size_t layouts = 0;
  for (const MeasuredPart& p : seen.parts) {
    if (p.layer) layouts += p.layouts.size();
    for (size_t i = 1; i < p.layouts.size(); ++i) EXPECT_LE(p.layouts[i - 1].bytes, p.layouts[i].bytes);
  }
  EXPECT_EQ(layouts, r.candidates);
  EXPECT_EQ(seen.parts.back().module, "lm_head");
  EXPECT_EQ(seen.parts.front().module, "q_proj");
}

constexpr const char* kForeign = R"({"measurement": {
  "model.layers.10.mlp": [{"accuracy": 0.99, "total_bits": 800, "up_proj": {"bits": [4], "bits_prop": [1]}}],
  "model.layers.2.self_attn": [
    {"accuracy": 0.75, "total_bits": 1600, "q_proj": {"bits": [4, 3], "bits_prop": [0.1, 0.9]}, "o_proj": {"bits": [5]}},
    {"accuracy": 0.5, "total_bits": 400}]}, "last_module_idx": 7})";

TEST_F(Inspect, AMeasurementOfExllamav2IsShownButNotQuantizedBy) {
  const fs::path file = dir_ / "measurement.json";
  write(file, kForeign);
  const auto seen = std::get<MeasurementReport>(inspect_path(file));
  EXPECT_TRUE(seen.foreign);
  ASSERT_EQ(seen.parts.size(), 2u);
  EXPECT_EQ(seen.parts[0].layer, 2u);
  EXPECT_EQ(seen.parts[1].layer, 10u);
  EXPECT_EQ(seen.parts[0].module, "self_attn");
  ASSERT_EQ(seen.parts[0].layouts.size(), 2u);
  EXPECT_EQ(seen.parts[0].layouts[0].bytes, 50u);
  EXPECT_DOUBLE_EQ(seen.parts[0].layouts[1].price, 0.25);
  EXPECT_EQ(seen.parts[0].layouts[1].layout, "o_proj 5 q_proj 4 3");
  QuantizeOptions o = options();
  o.measurement = file;
  expect_error([&] { quantize(o); }, ErrorCode::kModel,
               {"measurement.json", "exllamav2 wrote this measurement", "relative errors", "measure the model again"});
  for (const char* damaged :
       {R"({"measurement": [], "last_module_idx": 7})", R"({"measurement": {"a": 1}, "last_module_idx": 7})",
        R"({"measurement": {"a": [{"accuracy": 1}]}, "last_module_idx": 7})",
        R"({"measurement": {"a": [{"accuracy": 1, "total_bits": -8}]}, "last_module_idx": 7})"}) {
    write(file, damaged);
    expect_error([&] { inspect_path(file); }, ErrorCode::kModel, {"measurement.json", "is damaged"});
  }
}

TEST_F(Inspect, AWorkFolderTellsHowFarItsJobIs) {
  bool begun = false, quantizing = false;
  size_t measured = 0, written = 0;
  for (int runs = 0; test::stopped_at(options(), 4); ++runs) {
    ASSERT_LT(runs, 60);
    if (!fs::exists(dir_ / "out.work")) continue;
    const auto before = test::contents(dir_ / "out.work");
    const auto seen = std::get<JobReport>(inspect_path(dir_ / "out.work"));
    EXPECT_EQ(test::contents(dir_ / "out.work"), before);  // nothing is touched
    EXPECT_GT(seen.bytes, 0u);
    ASSERT_FALSE(seen.steps.empty());
    const JobStep& measure = seen.steps[0];
    EXPECT_EQ(measure.name, "measure");
    EXPECT_EQ(measure.total, 4u);  // two layers, forward and back
    EXPECT_LE(measure.done, measure.total);
    EXPECT_GE(measure.done, measured);
    EXPECT_EQ(measure.state == State::kDone, measure.done == measure.total);
    measured = measure.done;
    begun |= measure.state == State::kBegun;
    for (const JobStep& step : std::span(seen.steps).subspan(1)) {
      EXPECT_EQ(step.name, "4.5bpw");
      EXPECT_EQ(step.output, fs::absolute(dir_ / "out").string());
      EXPECT_EQ(step.total, 3u);  // and the head
      EXPECT_GE(step.done, written);
      written = step.done;
      quantizing |= step.state == State::kBegun && measure.state == State::kDone;
    }
  }
  EXPECT_TRUE(begun);
  EXPECT_TRUE(quantizing);
}

TEST_F(Inspect, WhatIsNoneOfTheseIsRefused) {
  expect_error([&] { inspect_path(dir_ / "nothing"); }, ErrorCode::kIo, {"nothing", "no such file"});
  expect_error([&] { inspect_path(text_); }, ErrorCode::kModel, {"text.txt", "work folder"});
  expect_error([&] { inspect_path(kModel / "config.json"); }, ErrorCode::kModel, {"config.json", "no measurement"});
  write(dir_ / "cut.safetensors", "abc");
  expect_error([&] { inspect_path(dir_ / "cut.safetensors"); }, ErrorCode::kModel, {"cut.safetensors"});
  expect_error([&] { inspect_path(dir_.path()); }, ErrorCode::kModel, {"config.json"});
}

TEST(LayerOfKey, IsTheNumberAfterLayers) {
  EXPECT_EQ(pipeline::layer_of_key("model.layers.12.mlp.up_proj"), 12u);
  EXPECT_EQ(pipeline::layer_of_key("layers.0"), 0u);
  EXPECT_EQ(pipeline::layer_of_key("a.b.layers.3.x"), 3u);
  for (const char* none : {"", "lm_head", "model.layers.x.y", "model.layers.", "model.layers.1x", "mylayers.1.x"}) {
    EXPECT_EQ(pipeline::layer_of_key(none), std::nullopt) << none;
  }
}

}  // namespace
}  // namespace bw
