#include "nn/layer_gradient.h"

namespace bw::nn {

using backend::Tensor;
using model::LinearKind;
namespace op = backend::op;

// What the backward pass needs of the forward one. Tensors of one batch.
struct LayerGradient::Tape {
  Tensor h;                  // the layer's input
  Tensor x_attention;        // input of q, k, v
  Tensor q_plain, k_plain;   // before their norms; empty without
  Tensor q, k, v;            // as attention reads them
  Tensor attended;           // input of o
  Tensor o_plain;            // output of o, before its norm; empty without
  Tensor h_between;          // the residual stream between attention and MLP
  Tensor x_mlp;              // input of gate and up
  Tensor gate, up, product;  // product: input of down
  Tensor down_plain;         // as o_plain
};

std::shared_ptr<const backend::Weight> LayerGradient::pack_transposed(const Tensor& w) const {
  const Tensor transposed = device_.allocate(w.cols, w.rows);
  device_.enqueue(op::TransposeInOrder{w, {}, transposed});
  return decoder_.pack(transposed);
}

TransposedWeights LayerGradient::pack_transposed(const LayerWeights& weights) const {
  TransposedWeights packed;
  for (size_t i = 0; i < packed.size(); ++i) packed[i] = pack_transposed(weights.raw[i]);
  return packed;
}

LayerGradient::Tape LayerGradient::forward(const LayerWeights& weights, size_t layer, const RowBatch& batch,
                                           const Tensor& h) const {
  const model::ModelConfig& c = decoder_.config();
  const auto linear = [&](LinearKind kind, const Tensor& x, size_t out) {
    const Tensor y = device_.allocate(x.rows, out);
    decoder_.run_linear(weights, kind, x, y);
    return y;
  };
  const auto plus = [&](const Tensor& x, const Tensor& y) {
    const Tensor sum = device_.allocate(x.rows, x.cols);
    device_.enqueue(op::Copy{x, sum});
    device_.enqueue(op::Add{y, sum});
    return sum;
  };
  Tape t;
  t.h = h;
  t.x_attention = decoder_.normed(h, weights.attention_in_norm);
  t.q = linear(LinearKind::kQ, t.x_attention, c.n_heads * c.head_dim);
  t.k = linear(LinearKind::kK, t.x_attention, c.n_kv_heads * c.head_dim);
  t.v = linear(LinearKind::kV, t.x_attention, c.n_kv_heads * c.head_dim);
  if (!weights.q_norm.empty()) t.q_plain = std::exchange(t.q, decoder_.normed(t.q, weights.q_norm));
  if (!weights.k_norm.empty()) t.k_plain = std::exchange(t.k, decoder_.normed(t.k, weights.k_norm));
  decoder_.rotate(layer, batch, t.q, t.k, false);
  t.attended = device_.allocate(h.rows, t.q.cols);
  device_.enqueue(op::Attention{t.q, t.k, t.v, batch.sequences, decoder_.attention_shape(layer), t.attended});
  Tensor o = linear(LinearKind::kO, t.attended, c.hidden);
  if (!weights.attention_out_norm.empty()) t.o_plain = std::exchange(o, decoder_.normed(o, weights.attention_out_norm));
  t.h_between = plus(h, o);
  t.x_mlp = decoder_.normed(t.h_between, weights.mlp_in_norm);
  t.gate = linear(LinearKind::kGate, t.x_mlp, c.intermediate);
  t.up = linear(LinearKind::kUp, t.x_mlp, c.intermediate);
  t.product = device_.allocate(h.rows, c.intermediate);
  device_.enqueue(op::GatedActivation{t.gate, t.up, decoder_.activation(), t.product});
  if (!weights.mlp_out_norm.empty()) t.down_plain = linear(LinearKind::kDown, t.product, c.hidden);
  return t;
}

Tensor LayerGradient::through_norm(const Tensor& raw, const Tensor& norm, const Tensor& dh) const {
  if (norm.empty()) return dh;
  const Tensor g = device_.allocate(dh.rows, dh.cols);
  device_.enqueue(op::RmsNormGradient{raw, norm, decoder_.config().norm_eps, dh, g});
  return g;
}

void LayerGradient::add_product(const TransposedWeights& transposed, LinearKind kind, const Tensor& dy,
                                const Tensor& dx, bool accumulate) const {
  device_.enqueue(op::Linear{dy, transposed[static_cast<size_t>(kind)], {}, dx, accumulate});
}

void LayerGradient::mlp_backward(const LayerWeights& weights, const TransposedWeights& transposed, const Tape& t,
                                 const Tensor& dh, const Tap& tap) const {
  const Tensor g = through_norm(t.down_plain, weights.mlp_out_norm, dh);
  tap(LinearKind::kDown, t.product, g);
  const Tensor dproduct = device_.allocate(t.product.rows, t.product.cols);
  add_product(transposed, LinearKind::kDown, g, dproduct, false);
  device_.enqueue(op::GatedActivationGradient{t.gate, t.up, decoder_.activation(), dproduct, t.gate, t.up});
  tap(LinearKind::kGate, t.x_mlp, t.gate);
  tap(LinearKind::kUp, t.x_mlp, t.up);
  const Tensor dx = device_.allocate(dh.rows, dh.cols);
  add_product(transposed, LinearKind::kGate, t.gate, dx, false);
  add_product(transposed, LinearKind::kUp, t.up, dx, true);
  device_.enqueue(
      op::RmsNormGradient{t.h_between, weights.mlp_in_norm, decoder_.config().norm_eps, dx, dh, /*accumulate=*/true});
}

void LayerGradient::attention_backward(const LayerWeights& weights, const TransposedWeights& transposed, size_t layer,
                                       const RowBatch& batch, const Tape& t, const Tensor& dh, const Tap& tap) const {
  const float eps = decoder_.config().norm_eps;
  const Tensor g = through_norm(t.o_plain, weights.attention_out_norm, dh);
  tap(LinearKind::kO, t.attended, g);
  const Tensor dattended = device_.allocate(t.attended.rows, t.attended.cols);
  add_product(transposed, LinearKind::kO, g, dattended, false);
  const Tensor dq = device_.allocate(t.q.rows, t.q.cols), dk = device_.allocate(t.k.rows, t.k.cols),
               dv = device_.allocate(t.v.rows, t.v.cols);
  device_.enqueue(
      op::AttentionGradient{t.q, t.k, t.v, dattended, batch.sequences, decoder_.attention_shape(layer), dq, dk, dv});
  decoder_.rotate(layer, batch, dq, dk, true);
  if (!t.q_plain.empty()) device_.enqueue(op::RmsNormGradient{t.q_plain, weights.q_norm, eps, dq, dq});
  if (!t.k_plain.empty()) device_.enqueue(op::RmsNormGradient{t.k_plain, weights.k_norm, eps, dk, dk});
  tap(LinearKind::kQ, t.x_attention, dq);
  tap(LinearKind::kK, t.x_attention, dk);
  tap(LinearKind::kV, t.x_attention, dv);
  const Tensor dx = device_.allocate(dh.rows, dh.cols);
  add_product(transposed, LinearKind::kQ, dq, dx, false);
  add_product(transposed, LinearKind::kK, dk, dx, true);
  add_product(transposed, LinearKind::kV, dv, dx, true);
  device_.enqueue(op::RmsNormGradient{t.h, weights.attention_in_norm, eps, dx, dh, /*accumulate=*/true});
}

void LayerGradient::backward(const LayerWeights& weights, const TransposedWeights& transposed, size_t layer,
                             const RowBatch& batch, const Tensor& h, const Tensor& dh, const Tap& tap) const {
  const Tape tape = forward(weights, layer, batch, h);
  mlp_backward(weights, transposed, tape, dh, tap);
  attention_backward(weights, transposed, layer, batch, tape, dh, tap);
}

void LayerGradient::head_backward(const Tensor& h, const Tensor& final_norm,
                                  const std::shared_ptr<const backend::Weight>& head, const Tensor& dlogits,
                                  const Tensor& dh) const {
  const Tensor dx = device_.allocate(h.rows, h.cols);
  device_.enqueue(op::Linear{dlogits, head, {}, dx});
  device_.enqueue(op::RmsNormGradient{h, final_norm, decoder_.config().norm_eps, dx, dh});
}

}  // namespace bw::nn
