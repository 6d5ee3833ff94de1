// What the first layers alone cost, as a job tells it.
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "bitwright/bitwright.h"
#include "io/json.h"
#include "pipeline/session.h"
#include "support/stopped.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;
using backend::Tensor;

constexpr size_t kLayers = 11, kVocab = 288, kLength = 32;

class LayerTraceOf : public testing::Test {
 protected:
  void SetUp() override {
    const test::TinySizes sizes{.hidden = 32,
                                .intermediate = 32,
                                .layers = kLayers,
                                .heads = 2,
                                .kv_heads = 1,
                                .head_dim = 16,
                                .vocab = kVocab};
    test::make_tiny_model("LlamaForCausalLM", sizes).save(options_.model);
    fs::copy_file(fs::path(BW_FIXTURES) / "models" / "llama" / "tokenizer.json", options_.model / "tokenizer.json");
    std::ofstream text(text_);
    for (int i = 0; i < 300; ++i) text << "Line " << i * i << " of the log says so. ";
  }

  io::Json trace() { return io::load_json(options_.output / "report.json").at("by_layers"); }

  test::TempDir dir_;
  fs::path text_ = dir_ / "text.txt";
  QuantizeOptions options_ = [this] {
    QuantizeOptions o;
    o.model = dir_ / "model";
    o.output = dir_ / "out";
    o.bpw = {4.0};
    o.calibration = {{text_}, 4, kLength, 1};
    o.engine.threads = 1;
    o.engine.arithmetic = Arithmetic::kF32;
    o.work.checkpoint_seconds = 0;
    return o;
  }();
};

// Logits of models whose layers and head come from one directory or another.
class MixedModel {
 public:
  explicit MixedModel(const fs::path& original, const fs::path& quantized)
      : original_(original), quantized_(quantized, true) {}

  std::vector<double> log_probabilities(std::span<const uint32_t> ids, size_t layers, bool head) {
    backend::Backend& device = *run_.device;
    const nn::Decoder decoder(device, original_.config(), ids.size(), backend::Precision::kF32);
    Tensor h = decoder.embed(original_, ids);
    for (size_t layer = 0; layer < kLayers; ++layer) {
      const model::ModelDir& dir = layer < layers ? quantized_ : original_;
      nn::LayerWeights weights = decoder.load_layer(dir, layer, linear_loader(dir, device));
      decoder.pack(weights, false);
      decoder.forward_layer(weights, layer, {1, ids.size()}, h);
    }
    const model::ModelDir& end = head ? quantized_ : original_;
    const Tensor out = device.allocate(ids.size(), kVocab);
    decoder.logits(h, decoder.load_final_norm(original_), decoder.pack(linear_loader(end, device)(end.head())), out);
    const backend::HostTensor values = device.download(out);
    device.wait(values, "test");
    const auto logits = values.as<const float>();
    std::vector<double> log_p(logits.begin(), logits.end());
    for (size_t t = 0; t < ids.size(); ++t) {
      double sum = 0;
      for (size_t v = 0; v < kVocab; ++v) sum += std::exp(log_p[t * kVocab + v]);
      for (size_t v = 0; v < kVocab; ++v) log_p[t * kVocab + v] -= std::log(sum);
    }
    return log_p;
  }

  calib::Rows held_out(const CalibrationOptions& options) { return calibration_mix(run_, original_, options).held_out; }

 private:
  Run run_{{}, backend::make_cpu_backend(1)};
  model::ModelDir original_, quantized_;
};

// Mean over all tokens but the last.
double kld(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0;
  for (size_t i = 0; i + kVocab < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum / (kLength - 1);
}

TEST_F(LayerTraceOf, IsWhatModelsSayOfWhichOnlyTheFirstLayersAreQuantized) {
  const QuantizeResult r = quantize(options_).at(0);
  MixedModel mixed(options_.model, options_.output);
  const calib::Rows rows = mixed.held_out(options_.calibration);
  ASSERT_EQ(rows.count(), 1u);
  const auto first = rows.row(0);
  const std::vector<double> original = mixed.log_probabilities(first, 0, false);
  const io::Json points = trace();
  std::vector<size_t> branches;
  for (const io::Json& point : points) {
    const size_t layers = point.at("layers").get<size_t>();
    const double measured = point.at("kld").at("value").get<double>();
    const double expected = kld(original, mixed.log_probabilities(first, layers, point.at("head").get<bool>()));
    EXPECT_NEAR(measured, expected, 0.01 * expected) << layers;  // f16 scales of norms and embeddings in the output
    branches.push_back(layers);
  }
  EXPECT_EQ(branches, (std::vector<size_t>{1, 3, 5, 7, 9, kLayers, kLayers}));
  EXPECT_TRUE(points.back().at("head").get<bool>());
  EXPECT_NEAR(points.back().at("predicted_kld").get<double>(), r.predicted_kld, 1e-9);
  EXPECT_TRUE(r.measured.held_out);  // and there is no other row than the first
  EXPECT_EQ(points.back().at("kld").at("value"), r.measured.kld.value);
  EXPECT_EQ(r.measured.tokens, kLength - 1);
  EXPECT_LT(points[0].at("predicted_kld"), points[1].at("predicted_kld"));
  EXPECT_LT(points[5].at("predicted_kld"), points[6].at("predicted_kld"));
}

TEST_F(LayerTraceOf, WhereNothingIsLeftToHoldOutCalibrationTokensAreMeasured) {
  options_.calibration.files = {dir_ / "rows.jsonl"};
  calibrate({options_.model, dir_ / "rows.jsonl", {{text_}, 4, kLength, 1}, {}});
  const QuantizeResult r = quantize(options_).at(0);
  EXPECT_FALSE(r.measured.held_out);
  EXPECT_EQ(r.measured.tokens, 4 * (kLength - 1));
  EXPECT_GT(r.measured.kld.value, 0);
  EXPECT_TRUE(trace().empty());
}

TEST_F(LayerTraceOf, OfAResumedJobIsTheSame) {
  quantize(options_);
  const io::Json whole = trace();
  fs::remove_all(options_.output);
  size_t stops = 0;
  for (int n = 5; test::stopped_at(options_, n); n += 5) ++stops;
  EXPECT_GT(stops, 3u);
  EXPECT_EQ(trace(), whole);
}

}  // namespace
}  // namespace bw::pipeline
