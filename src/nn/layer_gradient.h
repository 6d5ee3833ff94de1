// The backward pass of one decoder layer, recomputed from the layer's input.
#pragma once

#include <array>
#include <functional>

#include "nn/decoder.h"

namespace bw::nn {

// Weights of a layer packed for products with gradients: dx = dy · W.
using TransposedWeights = std::array<std::shared_ptr<const backend::Weight>, model::kLinearsPerLayer>;

class LayerGradient {
 public:
  // `decoder` must outlive it.
  explicit LayerGradient(const Decoder& decoder) : decoder_(decoder), device_(decoder.device()) {}

  // Packs a raw weight (out, in) for dx (T, in) = dy (T, out) · W.
  std::shared_ptr<const backend::Weight> pack_transposed(const backend::Tensor& w) const;
  // Of all linears of a layer whose raw weights are there.
  TransposedWeights pack_transposed(const LayerWeights& weights) const;

  // What a linear of the layer sees and what the loss feels of it: called once for each, with its input x (T, in) and
  // the gradient g (T, out) of the loss to its output. Both may be overwritten once the call has returned.
  using Tap = std::function<void(model::LinearKind, const backend::Tensor& x, const backend::Tensor& g)>;

  // h (T, hidden): the layer's input. dh (T, hidden): the gradient to its output, becomes that to its input.
  void backward(const LayerWeights& weights, const TransposedWeights& transposed, size_t layer, const RowBatch& batch,
                const backend::Tensor& h, const backend::Tensor& dh, const Tap& tap) const;

  // dh (T, hidden) of final hidden states h from the gradient `dlogits` (T, vocab), through `head` (transposed) and
  // final norm.
  void head_backward(const backend::Tensor& h, const backend::Tensor& final_norm,
                     const std::shared_ptr<const backend::Weight>& head, const backend::Tensor& dlogits,
                     const backend::Tensor& dh) const;

 private:
  struct Tape;
  Tape forward(const LayerWeights& weights, size_t layer, const RowBatch& batch, const backend::Tensor& h) const;
  void mlp_backward(const LayerWeights& weights, const TransposedWeights& transposed, const Tape& tape,
                    const backend::Tensor& dh, const Tap& tap) const;
  void attention_backward(const LayerWeights& weights, const TransposedWeights& transposed, size_t layer,
                          const RowBatch& batch, const Tape& tape, const backend::Tensor& dh, const Tap& tap) const;
  // The gradient to a linear's output that reaches the residual stream with gradient dh, through `norm` if there is
  // one.
  backend::Tensor through_norm(const backend::Tensor& raw, const backend::Tensor& norm,
                               const backend::Tensor& dh) const;
  void add_product(const TransposedWeights& transposed, model::LinearKind kind, const backend::Tensor& dy,
                   const backend::Tensor& dx, bool accumulate) const;

  const Decoder& decoder_;
  backend::Backend& device_;
};

}  // namespace bw::nn
