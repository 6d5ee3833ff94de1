#include "pipeline/gradients.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/rng.h"
#include "io/scratch_file.h"
#include "pipeline/layer_feed.h"

namespace bw::pipeline {
namespace {

using backend::DType;
using backend::HostTensor;
using backend::Tensor;
namespace op = backend::op;

constexpr size_t kLogitTokens = 128;      // rows of logits that exist at once
constexpr size_t kBackwardTokens = 2048;  // tokens of whole rows whose activations exist at once
constexpr uint64_t kSuccessorStream = 3;

class GradientPass {
 public:
  GradientPass(Run& run, const model::ModelDir& dir, const calib::Rows& rows, const std::filesystem::path& scratch)
      : run_(run),
        device_(*run.device),
        dir_(dir),
        rows_(rows),
        decoder_(device_, dir.config(), rows.length, run.precision),
        gradient_(decoder_),
        load_(linear_loader(dir, device_)),
        scratch_(scratch) {}

  // Runs the rows through the model and keeps the input of every layer.
  void forward() {
    states_ = std::make_unique<States>(embed_rows(run_, decoder_, dir_, rows_));
    LayerFeed feed(run_, dir_, decoder_, load_, "gradients", LayerFeed::Order::kForward);
    std::vector<HostTensor> pending;
    for (size_t layer = 0; layer < layers(); ++layer) {
      progress(layer, fmt::format("layer {}", layer));
      nn::LayerWeights weights = feed.next();
      decoder_.pack(weights, keeps_weights());
      std::vector<HostTensor> inputs = forward_layer(layer, weights);
      if (keeps_weights()) kept_.push_back(std::move(weights));
      if (layer > 0) keep(layer - 1, pending);  // the device has this layer to work on meanwhile
      pending = std::move(inputs);
      feed.all_enqueued();
    }
    keep(layers() - 1, pending);
  }

  // From the final states to the gradient to them.
  HostTensor head(uint64_t seed, GradientVisitor* visitor) {
    const StageClock::Span span(run_.clock, "gradients: head");
    const Tensor norm = decoder_.load_final_norm(dir_), raw = load_(dir_.head());
    auto packed = decoder_.pack(raw), transposed = gradient_.pack_transposed(raw);
    const Tensor uniforms = upload_uniforms(seed), gains = device_.allocate(states_->tokens(), 1);
    Tensor logits = device_.allocate(kLogitTokens, packed->out());
    gradients_ = std::make_unique<States>(device_, states_->on_device());
    size_t first = 0;
    for (size_t b = 0; b < states_->count(); ++b) {
      run_.reporter.check_interrupted();
      const Tensor h = states_->take(b), dh = device_.allocate(h.rows, h.cols);
      for (size_t at = 0; at < h.rows; at += kLogitTokens) {
        const size_t count = std::min(kLogitTokens, h.rows - at);
        const Tensor chunk = logits.rows_slice(0, count), part = h.rows_slice(at, count);
        decoder_.logits(part, norm, packed, chunk);
        device_.enqueue(
            op::SampledGradient{chunk, uniforms.rows_slice(first + at, count), dir_.config().final_softcap});
        device_.enqueue(op::RowSquaredNorms{chunk, {}, gains.rows_slice(first + at, count)});
        gradient_.head_backward(part, norm, transposed, chunk, dh.rows_slice(at, count));
      }
      if (visitor) {
        device_.enqueue(op::RmsNorm{h, norm, dir_.config().norm_eps, h});  // in place: this was the states' last use
        visitor->visit_head(h, gains.rows_slice(first, h.rows));
      }
      gradients_->add(states_->batch(b), dh);
      first += h.rows;
    }
    packed = transposed = nullptr;  // each as large as the head: make room for what the visitor does with it
    logits = {};
    if (visitor) visitor->end_head(raw);
    return device_.download(gains);
  }

  // All layers, last first.
  std::vector<Matrix<float>> backward(GradientVisitor* visitor) {
    std::vector<HostTensor> gains(layers());
    LayerFeed feed(run_, dir_, decoder_, load_, "gradients", LayerFeed::Order::kBackward);
    if (!kept_.empty()) feed.take_from(kept_);
    for (size_t layer = layers(); layer-- > 0;) {
      progress(2 * layers() - 1 - layer, fmt::format("back to layer {}", layer));
      nn::LayerWeights weights = feed.next();
      gains[layer] = backward_layer(layer, weights, visitor);
      feed.all_enqueued();
    }
    std::vector<Matrix<float>> on_host;
    for (const HostTensor& g : gains) on_host.push_back(to_host(g));
    return on_host;
  }

  Matrix<float> to_host(const HostTensor& gains) const {
    device_.wait(gains, "gains");
    Matrix<float> copy(gains.rows, gains.cols);
    const auto values = gains.as<const float>();
    std::copy(values.begin(), values.end(), copy.data());
    return copy;
  }

 private:
  // Whether the weights of all layers have room on a device far away, raw and packed, so that they travel once and not
  // for each pass. (Where memory is the host's, they are read again: that costs nothing.)
  bool keeps_weights() const {
    if (device_.runs_at_once() || !states_->on_device()) return false;
    const uint64_t limit = device_.memory_limit();
    const uint64_t all = 2 * sizeof(float) * weights_of_layers(dir_.config());
    return limit == 0 || all + device_bytes_needed(dir_.config(), 3 * states_->tokens()) <= limit;
  }
  size_t layers() const { return dir_.config().n_layers; }
  uint64_t layer_bytes() const { return rows_.ids.size() * dir_.config().hidden * dtype_size(DType::kBF16); }
  void progress(size_t done, std::string text) {
    run_.reporter.progress("gradients", static_cast<double>(done), static_cast<double>(2 * layers()), std::move(text));
  }

  // The inputs that the layer saw, as they are to be kept: one piece, or one for each batch where states do not fit.
  std::vector<HostTensor> forward_layer(size_t layer, const nn::LayerWeights& weights) {
    const StageClock::Span span(run_.clock, "gradients: forward");
    std::vector<HostTensor> pieces;
    const bool together = states_->on_device();
    Tensor all = together ? device_.allocate(states_->tokens(), dir_.config().hidden, DType::kBF16) : Tensor{};
    size_t first = 0;
    states_->for_each([&](const nn::RowBatch& batch, nn::Carry& carry) {
      Tensor part = together ? all.rows_slice(first, batch.tokens())
                             : device_.allocate(batch.tokens(), dir_.config().hidden, DType::kBF16);
      device_.enqueue(op::Copy{carry.h, part});
      decoder_.forward_layer(weights, layer, batch, carry.h);
      if (!together) pieces.push_back(device_.download(std::move(part)));
      first += batch.tokens();
    });
    if (together) pieces.push_back(device_.download(std::move(all)));
    return pieces;
  }

  void keep(size_t layer, const std::vector<HostTensor>& pieces) {
    if (!pieces.empty()) device_.wait(pieces.back(), "layer inputs");  // the others have come before
    uint64_t at = layer * layer_bytes();
    for (const HostTensor& piece : pieces) {
      device_.wait(piece, "layer inputs");
      scratch_.write(at, piece.raw());
      at += piece.bytes();
    }
  }

  // Inputs of `count` tokens of a layer.
  Tensor fetch(size_t layer, size_t first, size_t count) {
    HostTensor staged = device_.stage(count, dir_.config().hidden, DType::kBF16);
    const uint64_t row_bytes = dir_.config().hidden * dtype_size(DType::kBF16);
    scratch_.read(layer * layer_bytes() + first * row_bytes, staged.raw());
    return device_.upload(std::move(staged));
  }

  Tensor upload_uniforms(uint64_t seed) {
    HostTensor uniforms = device_.stage(states_->tokens(), 1);
    Rng rng(seed, kSuccessorStream);
    for (float& u : uniforms.as<float>()) u = rng.next_float();
    return device_.upload(std::move(uniforms));
  }

  HostTensor backward_layer(size_t layer, nn::LayerWeights& weights, GradientVisitor* visitor) {
    const bool together = gradients_->on_device();
    const Tensor all = together ? fetch(layer, 0, gradients_->tokens()) : Tensor{};
    const Tensor gains = device_.allocate(gradients_->tokens(), model::kLinearsPerLayer);
    decoder_.pack(weights, true);
    const nn::TransposedWeights transposed = gradient_.pack_transposed(weights);
    if (visitor) visitor->begin(layer, weights);
    const size_t rows_at_once = std::max<size_t>(1, kBackwardTokens / rows_.length);
    size_t first = 0;  // token
    gradients_->for_each([&](const nn::RowBatch& batch, nn::Carry& carry) {
      const Tensor inputs = together ? all.rows_slice(first, batch.tokens()) : fetch(layer, first, batch.tokens());
      for (size_t row = 0; row < batch.sequences; row += rows_at_once) {
        const nn::RowBatch part{std::min(rows_at_once, batch.sequences - row), batch.length};
        const size_t at = row * batch.length;
        const Tensor h = device_.allocate(part.tokens(), dir_.config().hidden);
        device_.enqueue(op::Copy{inputs.rows_slice(at, part.tokens()), h});
        backward_part(layer, weights, transposed, part, h, carry.h.rows_slice(at, part.tokens()),
                      gains.rows_slice(first + at, part.tokens()), visitor);
      }
      first += batch.tokens();
    });
    if (visitor) visitor->end(layer, weights);
    return device_.download(gains);
  }

  void backward_part(size_t layer, const nn::LayerWeights& weights, const nn::TransposedWeights& transposed,
                     const nn::RowBatch& part, const Tensor& h, const Tensor& dh, const Tensor& gains,
                     GradientVisitor* visitor) {
    const StageClock::Span span(run_.clock, "gradients: backward");
    gradient_.backward(weights, transposed, layer, part, h, dh,
                       [&](model::LinearKind kind, const Tensor& x, const Tensor& g) {
                         const Tensor gain = gains.cols_slice(static_cast<size_t>(kind), 1);
                         device_.enqueue(op::RowSquaredNorms{g, {}, gain});
                         if (visitor) visitor->visit(kind, x, gain);
                       });
  }

  Run& run_;
  backend::Backend& device_;
  const model::ModelDir& dir_;
  const calib::Rows& rows_;
  nn::Decoder decoder_;
  nn::LayerGradient gradient_;
  nn::Decoder::LinearLoader load_;
  std::vector<nn::LayerWeights> kept_;
  io::ScratchFile scratch_;  // bf16 inputs of every layer, one after the other
  std::unique_ptr<States> states_;
  std::unique_ptr<States> gradients_;  // to the states that the backward pass has come to
};

}  // namespace

TokenGains find_gradients(Run& run, const model::ModelDir& dir, const calib::Rows& rows, uint64_t seed,
                          const std::filesystem::path& scratch, GradientVisitor* visitor) {
  GradientPass pass(run, dir, rows, scratch);
  pass.forward();
  TokenGains gains;
  const HostTensor head = pass.head(seed, visitor);
  gains.layers = pass.backward(visitor);
  gains.head = pass.to_host(head);
  const double steps = static_cast<double>(2 * dir.config().n_layers);
  run.reporter.progress("gradients", steps, steps);
  return gains;
}

}  // namespace bw::pipeline
