#include "pipeline/layer_trace.h"

#include <algorithm>

#include "nn/rope_table.h"

namespace bw::pipeline {
namespace {

using backend::Tensor;

// Where angles depend on the row's length, a part of a row is not what the whole is.
size_t traced_tokens(const model::ModelConfig& config, size_t length) {
  const auto depends = [&](const model::RopeConfig& rope) {
    return nn::depends_on_length(rope, config.max_position, length);
  };
  return depends(config.rope) || depends(config.rope_sliding) ? length : std::min(length, LayerTrace::kTokens);
}

}  // namespace

LayerTrace::LayerTrace(backend::Backend& device, const nn::Decoder& decoder, size_t length)
    : device_(device), decoder_(decoder), batch_{1, traced_tokens(decoder.config(), length)} {}

// Numbers of quantized layers behind which the stream branches, up to `done`; behind the last layer it does not.
std::vector<size_t> LayerTrace::due(size_t done) const {
  const size_t layers = decoder_.config().n_layers, count = std::min(kBranches, layers - 1);
  std::vector<size_t> due;
  for (size_t i = 1; i <= count; ++i) {
    if (const size_t at = i * layers / (count + 1); at <= done) due.push_back(at);
  }
  return due;
}

void LayerTrace::pass(size_t layer, const nn::LayerWeights& original) {
  for (Branch& branch : branches_) decoder_.forward_layer(original, layer, batch_, branch.h);
}

void LayerTrace::quantized(size_t layer, const Tensor& h) {
  const std::vector<size_t> now = due(layer + 1);
  if (now.empty() || now.back() != layer + 1) return;
  const Tensor own = device_.allocate(tokens(), h.cols);
  device_.enqueue(backend::op::Copy{h.rows_slice(0, tokens()), own});
  branches_.push_back({layer + 1, own});
}

size_t LayerTrace::bytes(size_t done) const {
  return due(done).size() * tokens() * decoder_.config().hidden * sizeof(float);
}

void LayerTrace::save(io::PieceWriter& piece) const {
  for (const Branch& branch : branches_) {
    const backend::HostTensor h = device_.download(branch.h);
    device_.wait(h, "states");
    piece.write(h.raw());
  }
}

void LayerTrace::restore(size_t done, io::PieceReader& piece) {
  branches_.clear();
  for (const size_t at : due(done)) {
    backend::HostTensor h = device_.stage(tokens(), decoder_.config().hidden);
    piece.read_values(h.raw());
    branches_.push_back({at, device_.upload(std::move(h))});
  }
}

}  // namespace bw::pipeline
