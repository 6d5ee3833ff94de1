#include "pipeline/layer_trace.h"

#include <algorithm>

namespace bw::pipeline {

using backend::Tensor;

LayerTrace::LayerTrace(backend::Backend& device, const nn::Decoder& decoder, const model::ModelDir& dir,
                       const calib::Rows& held_out)
    : device_(device), decoder_(decoder), batch_{held_out.count(), held_out.length} {
  if (is_empty()) return;
  quantized_ = decoder.embed(dir, held_out.ids);
  original_ = decoder.embed(dir, held_out.ids);
}

// Numbers of quantized layers behind which the stream branches, up to `done`; behind the last layer it does not.
std::vector<size_t> LayerTrace::due(size_t done) const {
  const size_t count = is_empty() ? 0 : std::min(kBranches, layers() - 1);
  std::vector<size_t> due;
  for (size_t i = 1; i <= count; ++i) {
    if (const size_t at = i * layers() / (count + 1); at <= done) due.push_back(at);
  }
  return due;
}

void LayerTrace::pass(size_t layer, const nn::LayerWeights& quantized, const nn::LayerWeights& original) {
  if (is_empty()) return;
  for (Branch& branch : branches_) decoder_.forward_layer(original, layer, {1, batch_.length}, branch.h);
  decoder_.forward_layer(original, layer, batch_, original_);
  decoder_.forward_layer(quantized, layer, batch_, quantized_);
  const std::vector<size_t> now = due(layer + 1);
  if (now.empty() || now.back() != layer + 1) return;
  const Tensor own = device_.allocate(batch_.length, quantized_.cols);
  device_.enqueue(backend::op::Copy{quantized_.rows_slice(0, batch_.length), own});
  branches_.push_back({layer + 1, own});
}

size_t LayerTrace::bytes(size_t done) const {
  const size_t rows = 2 * batch_.sequences + due(done).size();
  return rows * batch_.length * decoder_.config().hidden * sizeof(float);
}

void LayerTrace::save(io::PieceWriter& piece) const {
  const auto write = [&](const Tensor& t) {
    const backend::HostTensor h = device_.download(t);
    device_.wait(h, "states");
    piece.write(h.raw());
  };
  if (is_empty()) return;
  write(quantized_);
  write(original_);
  for (const Branch& branch : branches_) write(branch.h);
}

void LayerTrace::restore(size_t done, io::PieceReader& piece) {
  const auto read = [&](size_t rows) {
    backend::HostTensor h = device_.stage(rows, decoder_.config().hidden);
    piece.read_values(h.raw());
    return device_.upload(std::move(h));
  };
  branches_.clear();
  if (is_empty()) return;
  quantized_ = read(batch_.tokens());
  original_ = read(batch_.tokens());
  for (const size_t at : due(done)) branches_.push_back({at, read(batch_.length)});
}

}  // namespace bw::pipeline
