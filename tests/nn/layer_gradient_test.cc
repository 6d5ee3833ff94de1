// Gradients of a whole model against finite differences of its loss.
#include "nn/layer_gradient.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "support/plain_linears.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace bw::nn {
namespace {

using backend::Tensor;
namespace op = backend::op;

constexpr size_t kSequences = 2, kLength = 13;  // longer than the window of the layers that slide

// A tiny model of two layers whose weights can be moved, and the loss of its rows for fixed successors.
class TinyLoss {
 public:
  TinyLoss(const std::string& architecture)
      : dir_((test::make_tiny_model(architecture).save(folder_ / "m"), folder_ / "m")),
        device_(backend::make_cpu_backend(2)),
        decoder_(*device_, dir_.config(), kLength, backend::Precision::kF32),
        load_(test::plain_linears(dir_, *device_)) {
    Rng rng(3);
    for (size_t t = 0; t < batch_.tokens(); ++t) ids_.push_back(rng.below(96));
    for (size_t t = 0; t < batch_.tokens(); ++t) uniforms_.push_back(rng.next_float());
    for (size_t layer = 0; layer < dir_.config().n_layers; ++layer) {
      layers_.push_back(decoder_.load_layer(dir_, layer, load_));
      decoder_.pack(layers_.back(), true);
    }
  }

  // Walks forward and back; what the taps see of linear `kind` of `layer` gives dL/dW (out, in).
  std::vector<float> weight_gradient(size_t layer, model::LinearKind kind) {
    std::vector<float> gradient;
    backward([&](size_t at, model::LinearKind k, const Tensor& x, const Tensor& g) {
      if (at != layer || k != kind) return;
      const Tensor dw = device_->allocate(g.cols, x.cols);
      device_->enqueue(op::Gemm{g, true, x, false, dw});
      gradient = device_->read<float>(dw, "test");
    });
    return gradient;
  }
  // dL/dh of the embeddings.
  std::vector<float> input_gradient() {
    return device_->read<float>(backward([](size_t, model::LinearKind, const Tensor&, const Tensor&) {}), "test");
  }

  // The loss when linear `kind` of `layer` is moved by `step` times `direction`.
  double loss_of_moved_weight(size_t layer, model::LinearKind kind, const std::vector<float>& direction, float step) {
    const size_t i = static_cast<size_t>(kind);
    LayerWeights& weights = layers_[layer];
    const Tensor raw = weights.raw[i];
    weights.linears[i] = decoder_.pack(moved(raw, direction, step));
    const double loss = loss_from(decoder_.embed(dir_, ids_));
    weights.linears[i] = decoder_.pack(raw);
    return loss;
  }
  double loss_of_moved_input(const std::vector<float>& direction, float step) {
    return loss_from(moved(decoder_.embed(dir_, ids_), direction, step));
  }

  const model::ModelDir& dir() const { return dir_; }
  size_t hidden_values() const { return batch_.tokens() * dir_.config().hidden; }

 private:
  using LayerTap = std::function<void(size_t layer, model::LinearKind, const Tensor& x, const Tensor& g)>;

  Tensor moved(const Tensor& x, const std::vector<float>& direction, float step) {
    std::vector<float> values = device_->read<float>(x, "test");
    for (size_t i = 0; i < values.size(); ++i) values[i] += step * direction[i];
    return device_->upload<float>(values, x.rows, x.cols);
  }

  Tensor logits(const Tensor& h) {
    const Tensor out = device_->allocate(h.rows, dir_.vocab_rows());
    decoder_.logits(h, decoder_.load_final_norm(dir_), decoder_.pack(load_(dir_.head())), out);
    return out;
  }

  double loss_from(Tensor h) {
    for (size_t layer = 0; layer < layers_.size(); ++layer) decoder_.forward_layer(layers_[layer], layer, batch_, h);
    const Tensor nll = device_->allocate(h.rows, 1);
    const Tensor targets = device_->upload<int32_t>(successors_, h.rows, 1);
    device_->enqueue(op::TokenNll{logits(h), targets, nll});
    const auto values = device_->read<float>(nll, "test");
    return std::accumulate(values.begin(), values.end(), 0.0);
  }

  Tensor backward(const LayerTap& tap) {
    std::vector<Tensor> inputs;
    Tensor h = decoder_.embed(dir_, ids_);
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      inputs.push_back(device_->allocate(h.rows, h.cols));
      device_->enqueue(op::Copy{h, inputs.back()});
      decoder_.forward_layer(layers_[layer], layer, batch_, h);
    }
    const Tensor dlogits = logits(h), dh = device_->allocate(h.rows, h.cols);
    device_->enqueue(
        op::SampledGradient{dlogits, device_->upload<float>(uniforms_, h.rows, 1), dir_.config().final_softcap});
    find_successors(dlogits);
    const LayerGradient gradient(decoder_);
    gradient.head_backward(h, decoder_.load_final_norm(dir_), gradient.pack_transposed(load_(dir_.head())), dlogits,
                           dh);
    for (size_t layer = layers_.size(); layer-- > 0;) {
      gradient.backward(layers_[layer], gradient.pack_transposed(layers_[layer]), layer, batch_, inputs[layer], dh,
                        [&](model::LinearKind kind, const Tensor& x, const Tensor& g) { tap(layer, kind, x, g); });
    }
    return dh;
  }

  // The drawn token is the one whose gradient is below 0.
  void find_successors(const Tensor& dlogits) {
    const auto values = device_->read<float>(dlogits, "test");
    successors_.clear();
    for (size_t t = 0; t < dlogits.rows; ++t) {
      const auto row = values.begin() + static_cast<std::ptrdiff_t>(t * dlogits.cols);
      successors_.push_back(
          static_cast<int32_t>(std::min_element(row, row + static_cast<std::ptrdiff_t>(dlogits.cols)) - row));
    }
  }

  test::TempDir folder_;
  model::ModelDir dir_;
  std::unique_ptr<backend::Backend> device_;
  Decoder decoder_;
  Decoder::LinearLoader load_;
  RowBatch batch_{kSequences, kLength};
  std::vector<uint32_t> ids_;
  std::vector<float> uniforms_;
  std::vector<int32_t> successors_;
  std::vector<LayerWeights> layers_;
};

std::vector<float> random_direction(size_t n) {
  Rng rng(n);
  std::vector<float> d(n);
  for (float& x : d) x = 2 * rng.next_float() - 1;
  return d;
}

double along(const std::vector<float>& gradient, const std::vector<float>& direction) {
  return std::inner_product(gradient.begin(), gradient.end(), direction.begin(), 0.0);
}

class LayerGradientOf : public testing::TestWithParam<std::string> {};

TEST_P(LayerGradientOf, TheInputIsTheSlopeOfTheLoss) {
  TinyLoss tiny(GetParam());
  const std::vector<float> gradient = tiny.input_gradient();
  std::vector<float> direction = random_direction(tiny.hidden_values());
  for (size_t i = 0; i < direction.size(); ++i)
    direction[i] = 0.1f * direction[i] + gradient[i];  // not lost in rounding
  const float step = 1e-3f;
  const double slope =
      (tiny.loss_of_moved_input(direction, step) - tiny.loss_of_moved_input(direction, -step)) / (2 * step);
  EXPECT_NEAR(slope / along(gradient, direction), 1, 0.02);
}

TEST_P(LayerGradientOf, EveryLinearIsTheSlopeOfTheLoss) {
  TinyLoss tiny(GetParam());
  for (size_t layer = 0; layer < 2; ++layer) {
    for (size_t i = 0; i < model::kLinearsPerLayer; ++i) {
      const auto kind = static_cast<model::LinearKind>(i);
      const std::vector<float> gradient = tiny.weight_gradient(layer, kind);
      std::vector<float> direction = gradient;
      const std::vector<float> noise = random_direction(gradient.size());
      const double length = std::sqrt(along(gradient, gradient) / static_cast<double>(gradient.size()));
      ASSERT_GT(length, 0);
      for (size_t j = 0; j < direction.size(); ++j) direction[j] += static_cast<float>(0.3 * length) * noise[j];
      const auto step = static_cast<float>(5e-4 / length);
      const double slope = (tiny.loss_of_moved_weight(layer, kind, direction, step) -
                            tiny.loss_of_moved_weight(layer, kind, direction, -step)) /
                           (2 * step);
      EXPECT_NEAR(slope / along(gradient, direction), 1, 0.02) << "layer " << layer << ", linear " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, LayerGradientOf,
                         testing::Values("LlamaForCausalLM", "Qwen2ForCausalLM", "Gemma3ForCausalLM"));

}  // namespace
}  // namespace bw::nn
