// The backward pass on the model fixtures against what torch computed (tools/make_gradient_fixtures.py).
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include <gtest/gtest.h>

#include "nn/golden.h"
#include "nn/layer_gradient.h"
#include "support/devices.h"
#include "support/plain_linears.h"

namespace bw::nn {
namespace {

namespace fs = std::filesystem;
using backend::Tensor;
namespace op = backend::op;

// Of the norm of what is compared. Measured: 6e-6 at most.
constexpr double kTolerance = 1e-4;

fs::path fixtures() { return BW_FIXTURES; }

void expect_close(std::span<const float> got, std::span<const float> want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double off = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    off += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  ASSERT_GT(norm, 0) << what;
  EXPECT_LT(std::sqrt(off / norm), kTolerance) << what;
}

// For each row of logits (T, vocabulary), the middle of the interval of uniform numbers that draw its successor.
std::vector<float> uniforms_that_draw(std::span<const uint32_t> successors, std::span<const float> logits) {
  const size_t vocabulary = logits.size() / successors.size();
  std::vector<float> uniforms;
  for (size_t t = 0; t < successors.size(); ++t) {
    std::vector<double> p;
    for (const float x : logits.subspan(t * vocabulary, vocabulary)) p.push_back(std::exp(static_cast<double>(x)));
    const auto drawn = p.begin() + successors[t];
    const double middle = std::accumulate(p.begin(), drawn, *drawn / 2);
    uniforms.push_back(static_cast<float>(middle / std::accumulate(p.begin(), p.end(), 0.0)));
  }
  return uniforms;
}

// One row of tokens through one of the models, forth and back.
class Walk {
 public:
  Walk(const std::string& model, const char* device)
      : dir_(fixtures() / "models" / model),
        golden_(dir_.path() / "golden.safetensors"),
        gradients_(fixtures() / "gradients" / (model + ".safetensors")),
        ids_(golden_tokens(golden_, "ids")),
        device_(test::make_device(device)),
        decoder_(*device_, dir_.config(), ids_.size(), backend::Precision::kF32),
        load_(test::plain_linears(dir_, *device_)) {}

  void check() {
    std::vector<LayerWeights> layers;
    std::vector<Tensor> states = {decoder_.embed(dir_, ids_)};  // the input of every layer, then the last output
    for (size_t layer = 0; layer < dir_.config().n_layers; ++layer) {
      layers.push_back(decoder_.load_layer(dir_, layer, load_));
      decoder_.pack(layers.back(), /*keep_raw=*/true);
      Tensor h = device_->allocate(states.back().rows, states.back().cols);
      device_->enqueue(op::Copy{states.back(), h});
      decoder_.forward_layer(layers.back(), layer, batch(), h);
      states.push_back(h);
    }
    const Tensor dh = gradient_to_last(states.back());
    expect_hidden(dh, layers.size());
    for (size_t layer = layers.size(); layer-- > 0;) {
      seen_ = 0;
      gradient_.backward(
          layers[layer], gradient_.pack_transposed(layers[layer]), layer, batch(), states[layer], dh,
          [&](model::LinearKind kind, const Tensor& x, const Tensor& g) { expect_linear(layer, kind, x, g); });
      EXPECT_EQ(seen_, model::kLinearsPerLayer);
      expect_hidden(dh, layer);
    }
  }

 private:
  RowBatch batch() const { return {1, ids_.size()}; }

  // Of the loss to the final hidden states h.
  Tensor gradient_to_last(const Tensor& h) const {
    const Tensor norm = decoder_.load_final_norm(dir_), head = load_(dir_.head());
    const Tensor logits = device_->allocate(h.rows, dir_.vocab_rows());
    decoder_.logits(h, norm, decoder_.pack(head), logits);
    const auto uniforms =
        uniforms_that_draw(golden_tokens(gradients_, "successors"), device_->read<float>(logits, "test"));
    const Tensor& dlogits = logits;  // in place
    device_->enqueue(
        op::SampledGradient{dlogits, device_->upload<float>(uniforms, h.rows, 1), dir_.config().final_softcap});
    Tensor dh = device_->allocate(h.rows, h.cols);
    gradient_.head_backward(h, norm, gradient_.pack_transposed(head), dlogits, dh);
    return dh;
  }

  void expect_hidden(const Tensor& dh, size_t state) const {
    const std::vector<float> want = golden_floats(gradients_, "hidden");
    const size_t n = dh.rows * dh.cols;
    expect_close(device_->read<float>(dh, "test"), std::span(want).subspan(state * n, n),
                 "to the hidden states, layers before them: " + std::to_string(state));
  }

  // Norms of the rows of g, and gᵀ · x times the probe.
  void expect_linear(size_t layer, model::LinearKind kind, const Tensor& x, const Tensor& g) {
    ++seen_;
    const auto xs = device_->read<float>(x, "test"), gs = device_->read<float>(g, "test");
    std::vector<float> norms;
    std::vector<double> probed(g.cols);
    for (size_t t = 0; t < g.rows; ++t) {
      const auto row = std::span(gs).subspan(t * g.cols, g.cols);
      norms.push_back(std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0f)));
      double along = 0;
      for (size_t i = 0; i < x.cols; ++i) along += (static_cast<double>(7 * i % 13) - 6) * xs[t * x.cols + i];
      for (size_t i = 0; i < g.cols; ++i) probed[i] += along * row[i];
    }
    const std::string name = "layers." + std::to_string(layer) + "." + std::string(model::linear_name(kind));
    expect_close(norms, golden_floats(gradients_, name + ".output"), name + ".output");
    expect_close(std::vector<float>(probed.begin(), probed.end()), golden_floats(gradients_, name + ".weight"),
                 name + ".weight");
  }

  model::ModelDir dir_;
  io::ShardSet golden_, gradients_;
  std::vector<uint32_t> ids_;
  std::unique_ptr<backend::Backend> device_;
  Decoder decoder_;
  Decoder::LinearLoader load_;
  LayerGradient gradient_{decoder_};
  size_t seen_ = 0;  // linears of the layer
};

TEST(GradientGolden, BackwardMatchesTorchOnEveryFixture) {
  size_t models = 0;
  for (const auto& folder : fs::directory_iterator(fixtures() / "models")) {
    const std::string model = folder.path().filename().string();
    ++models;
    for (const char* device : test::kDevices) {
      SCOPED_TRACE(model + " on " + device);
      Walk(model, device).check();
    }
  }
  EXPECT_GT(models, 0U);
}

}  // namespace
}  // namespace bw::nn
