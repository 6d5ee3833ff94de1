// Whether states stay within what f16 holds. Here they are floats; loaders compute in f16, and overflow or clamp.
#pragma once

#include "io/piece_file.h"
#include "nn/decoder.h"
#include "pipeline/reporter.h"

namespace bw::pipeline {

// The largest magnitudes of two streams side by side, layer by layer. Nothing is waited for while they are seen.
class StateRange {
 public:
  // `device` must outlive it.
  StateRange(backend::Backend& device, const model::ModelConfig& config);

  // States of some tokens, somewhere in the layer: residual stream and input of a site. Where norms stand between a
  // layer's outputs and the residual stream, loaders keep that one in f32, and it is not looked at.
  void see(size_t layer, const nn::Carry& quantized, const nn::Carry& original);

  // What has been seen, as bytes of a piece, and back again in a later run.
  size_t bytes() const { return largest_.rows * largest_.cols * sizeof(float); }
  void save(io::PieceWriter& piece) const;
  void restore(io::PieceReader& piece);

  // Warns if anything was beyond f16: where first, and how far.
  void tell(Reporter& reporter) const;

 private:
  std::vector<float> read() const;

  backend::Backend& device_;
  bool sees_residual_;
  backend::Tensor largest_;  // (layers, 2): quantized, original
};

}  // namespace bw::pipeline
