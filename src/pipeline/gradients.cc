#include "pipeline/gradients.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/rng.h"
#include "pipeline/job_pieces.h"
#include "pipeline/layer_feed.h"
#include "pipeline/layer_inputs.h"

namespace bw::pipeline {
namespace {

using backend::DType;
using backend::HostTensor;
using backend::Tensor;
namespace op = backend::op;

constexpr uint64_t kSuccessorStream = 3;
// What the way back through a layer takes, in passes forward (docs/performance.md), alone and with prices.
constexpr double kWorkBack = 2, kWorkBackPriced = 3;

class GradientPass {
 public:
  GradientPass(Run& run, const model::ModelDir& dir, const calib::Rows& rows, const StageWork& work, bool prices)
      : run_(run),
        device_(*run.device),
        dir_(dir),
        rows_(rows),
        decoder_(device_, dir.config(), rows.length, run.precision),
        gradient_(decoder_),
        load_(linear_loader(dir, device_)),
        work_(work),
        inputs_(device_, work.job, work.key, rows.ids.size(), dir.config().hidden),
        gains_(dir.config().n_layers),
        work_back_(prices ? kWorkBackPriced : kWorkBack) {}

  // Runs the rows through the model and keeps the input of every layer.
  void forward() {
    states_ = std::make_unique<States>(embed_rows(run_, decoder_, dir_, rows_, work_.job.root().path()));
    const size_t done = resume_forward();
    const bool keeps = keeps_weights() && done == 0;
    LayerFeed feed(run_, dir_, decoder_, load_, "gradients", LayerFeed::Order::kForward, done);
    std::vector<HostTensor> pending;
    for (size_t layer = done; layer < layers(); ++layer) {
      progress(static_cast<double>(layer), fmt::format("layer {}", layer));
      nn::LayerWeights weights = feed.next();
      decoder_.pack(weights, keeps);
      std::vector<HostTensor> inputs = forward_layer(layer, weights);
      if (keeps) kept_.push_back(std::move(weights));
      if (!pending.empty()) inputs_.keep(layer - 1, pending);  // the device has this layer to work on meanwhile
      pending = std::move(inputs);
      feed.all_enqueued();
      if (!work_.job.due()) continue;
      if (!pending.empty()) inputs_.keep(layer, std::exchange(pending, {}));
      save_forward(layer + 1);
    }
    if (!pending.empty()) inputs_.keep(layers() - 1, pending);
  }

  // From the final states to the gradient to them.
  void head(uint64_t seed, GradientVisitor* visitor) {
    const StageClock::Span span(run_.clock, "gradients: head");
    const Tensor norm = decoder_.load_final_norm(dir_), raw = load_(dir_.head());
    auto packed = decoder_.pack(raw), transposed = gradient_.pack_transposed(raw);
    const Tensor uniforms = upload_uniforms(seed), gains = device_.allocate(states_->tokens(), 1);
    Tensor logits = device_.allocate(kLogitTokens, packed->out());
    gradients_ = std::make_unique<States>(device_, states_->place());
    size_t first = 0;
    for (size_t b = 0; b < states_->count(); ++b) {
      const double share = static_cast<double>(b) / static_cast<double>(states_->count());
      progress(static_cast<double>(layers()) + share * work_of_head(), "head");
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
    if (visitor) visitor->end_head(raw, gains);
    head_gains_.arriving = device_.download(gains);
  }

  void tell_end() { progress(work_in_all(), {}); }

  // All layers that are left, last first.
  void backward(GradientVisitor* visitor) {
    LayerFeed feed(run_, dir_, decoder_, load_, "gradients", LayerFeed::Order::kBackward, layers() - left_);
    if (!kept_.empty()) feed.take_from(kept_);
    while (left_ > 0) {
      const size_t layer = left_ - 1;
      const auto back = static_cast<double>(layers() - left_);
      progress(static_cast<double>(layers()) + work_of_head() + back * work_back_,
               fmt::format("back to layer {}", layer));
      nn::LayerWeights weights = feed.next();
      gains_[layer].arriving = backward_layer(layer, weights, visitor);
      feed.all_enqueued();
      left_ = layer;
      if (left_ > 0 && work_.job.due()) save_backward(visitor);
    }
  }

  // Whether an earlier run has come to the way back; then the gradient, and what was found, are as they were there.
  bool resume_backward(GradientVisitor* visitor) {
    size_t left = 0;
    const bool kept = work_.job.read(work_.job.root(), kBackwardPiece, work_.key, [&](io::PieceReader& piece) {
      left = piece.number("left", layers());
      gradients_ = std::make_unique<States>(embed_rows(run_, decoder_, dir_, rows_, work_.job.root().path()));
      gradients_->restore(piece);
      const size_t tokens = rows_.ids.size();
      head_gains_.values = piece.read_matrix(tokens, 1);
      for (size_t layer = left; layer < layers(); ++layer) {
        gains_[layer].values = piece.read_matrix(tokens, model::kLinearsPerLayer);
      }
      if (visitor) visitor->restore(piece.header().at("found"));
      return left > 0 && piece.left() == 0;
    });
    if (!kept || !inputs_.has_until(left)) return false;
    left_ = left;
    work_.job.tell_resumed(fmt::format("the way back goes on at layer {}", left_ - 1));
    return true;
  }

  // After backward().
  TokenGains take_gains() {
    inputs_.discard(layers());
    work_.job.root().discard(kForwardPiece);
    work_.job.root().discard(kBackwardPiece);
    TokenGains gains;
    settle(head_gains_);
    gains.head = std::move(head_gains_.values);
    for (Gains& g : gains_) {
      settle(g);
      gains.layers.push_back(std::move(g.values));
    }
    return gains;
  }

 private:
  // Of one layer, or of the head.
  struct Gains {
    HostTensor arriving;  // until it has been waited for
    Matrix<float> values;
  };

  void settle(Gains& gains) const {
    if (!gains.arriving.memory) return;
    device_.wait(gains.arriving, "gains");
    gains.values = Matrix<float>(gains.arriving.rows, gains.arriving.cols);
    const auto values = gains.arriving.as<const float>();
    std::copy(values.begin(), values.end(), gains.values.data());
    gains.arriving = {};
  }

  // Layers that an earlier run has gone through: the states are then those behind them.
  size_t resume_forward() {
    size_t done = 0;
    const bool kept = work_.job.read(work_.job.root(), kForwardPiece, work_.key, [&](io::PieceReader& piece) {
      done = piece.number("done", layers());
      if (piece.left() != states_->bytes()) return false;
      if (!inputs_.has_until(done)) done = 0;
      if (done > 0) states_->restore(piece);
      return true;
    });
    if (!kept || done == 0) return 0;
    work_.job.tell_resumed(fmt::format("gradients go on at layer {}", done));
    return done;
  }

  void save_forward(size_t done) {
    io::PieceWriter piece(work_.job.root(), kForwardPiece, {{"done", done}});
    states_->save(piece);
    piece.seal(work_.key);
    work_.job.saved();
  }

  void save_backward(GradientVisitor* visitor) {
    const io::Json header = {{"left", left_}, {"found", visitor ? visitor->save() : io::Json()}};
    io::PieceWriter piece(work_.job.root(), kBackwardPiece, header);
    gradients_->save(piece);
    settle(head_gains_);
    piece.write_values(std::as_const(head_gains_.values).span());
    for (size_t layer = left_; layer < layers(); ++layer) {
      settle(gains_[layer]);
      piece.write_values(std::as_const(gains_[layer].values).span());
    }
    piece.seal(work_.key);
    work_.job.saved();
  }

  // Whether the weights of all layers have room on a device far away, raw and packed, so that they travel once and not
  // for each pass. (Where memory is the host's, they are read again: that costs nothing.)
  bool keeps_weights() const {
    if (device_.runs_at_once() || !states_->on_device()) return false;
    const uint64_t limit = device_.memory_limit();
    const uint64_t all = 2 * sizeof(float) * weights_of_layers(dir_.config());
    return limit == 0 || all + device_bytes_needed(dir_.config(), 3 * states_->tokens()) <= limit;
  }
  size_t layers() const { return dir_.config().n_layers; }
  // Work is counted in passes forward through a layer. The head is passed forward and back.
  double work_of_head() const { return 2 * layers_in_head(dir_); }
  double work_in_all() const { return static_cast<double>(layers()) * (1 + work_back_) + work_of_head(); }
  void progress(double done, std::string text) {
    run_.reporter.progress("gradients", done, work_in_all(), std::move(text));
  }

  // The inputs that the layer saw, as they are to be kept: one piece, or one for each batch where states do not fit;
  // none where memory has no room for them and they have been kept.
  std::vector<HostTensor> forward_layer(size_t layer, const nn::LayerWeights& weights) {
    const StageClock::Span span(run_.clock, "gradients: forward");
    std::vector<HostTensor> pieces;
    const bool together = states_->on_device();
    std::optional<LayerInputs::Keeper> keeper;
    if (!states_->place().scratch.empty()) keeper.emplace(inputs_, layer);
    Tensor all = together ? device_.allocate(states_->tokens(), dir_.config().hidden, DType::kBF16) : Tensor{};
    size_t first = 0;
    states_->for_each([&](const nn::RowBatch& batch, nn::Carry& carry) {
      Tensor part = together ? all.rows_slice(first, batch.tokens())
                             : device_.allocate(batch.tokens(), dir_.config().hidden, DType::kBF16);
      device_.enqueue(op::Copy{carry.h, part});
      decoder_.forward_layer(weights, layer, batch, carry.h);
      if (keeper) {
        keeper->add(device_.download(std::move(part)));
      } else if (!together) {
        pieces.push_back(device_.download(std::move(part)));
      }
      first += batch.tokens();
    });
    if (keeper) keeper->seal();
    if (together) pieces.push_back(device_.download(std::move(all)));
    return pieces;
  }

  // Inputs of `count` tokens of a layer.
  Tensor fetch(size_t layer, size_t first, size_t count) { return device_.upload(inputs_.read(layer, first, count)); }

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
    if (visitor) visitor->end(layer, weights, gains);
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
  const StageWork& work_;
  LayerInputs inputs_;
  std::vector<Gains> gains_;
  Gains head_gains_;
  double work_back_;
  size_t left_ = dir_.config().n_layers;  // layers that the way back has before it
  std::unique_ptr<States> states_;
  std::unique_ptr<States> gradients_;  // to the states that the backward pass has come to
};

}  // namespace

TokenGains find_gradients(Run& run, const model::ModelDir& dir, const calib::Rows& rows, uint64_t seed,
                          const StageWork& work, GradientVisitor* visitor) {
  GradientPass pass(run, dir, rows, work, visitor != nullptr);
  if (!pass.resume_backward(visitor)) {
    pass.forward();
    pass.head(seed, visitor);
  }
  pass.backward(visitor);
  TokenGains gains = pass.take_gains();
  pass.tell_end();
  return gains;
}

}  // namespace bw::pipeline
