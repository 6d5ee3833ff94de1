#include "pipeline/layer_inputs.h"

#include <fmt/format.h>

namespace bw::pipeline {
namespace {

using backend::DType;
using backend::HostTensor;

std::string name_of(size_t layer) { return fmt::format("inputs-{:05}.piece", layer); }

}  // namespace

LayerInputs::Keeper::Keeper(const LayerInputs& inputs, size_t layer)
    : inputs_(inputs), piece_(inputs.job_.root(), name_of(layer), {}) {}

void LayerInputs::Keeper::add(const HostTensor& part) {
  inputs_.device_.wait(part, "layer inputs");
  piece_.write(part.raw());
}

void LayerInputs::keep(size_t layer, const std::vector<HostTensor>& parts) const {
  if (!parts.empty()) device_.wait(parts.back(), "layer inputs");  // the others have come before
  Keeper keeper(*this, layer);
  for (const HostTensor& part : parts) keeper.add(part);
  keeper.seal();
}

bool LayerInputs::has_until(size_t end) const {
  for (size_t layer = 0; layer < end; ++layer) {
    const bool kept = job_.read(job_.root(), name_of(layer), key_, [&](const io::PieceReader& piece) {
      return piece.left() == tokens_ * hidden_ * dtype_size(DType::kBF16);
    });
    if (!kept) return false;
  }
  return true;
}

HostTensor LayerInputs::read(size_t layer, size_t first, size_t count) const {
  HostTensor staged = device_.stage(count, hidden_, DType::kBF16);
  const size_t row_bytes = hidden_ * dtype_size(DType::kBF16);
  io::PieceReader piece(job_.root(), name_of(layer));
  piece.take(first * row_bytes);
  piece.read_values(staged.raw());
  return staged;
}

void LayerInputs::discard(size_t layers) const {
  for (size_t layer = 0; layer < layers; ++layer) job_.root().discard(name_of(layer));
}

}  // namespace bw::pipeline
