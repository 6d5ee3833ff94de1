// From a model directory to the device.
#include "nn/decoder.h"

namespace bw::nn {
namespace {

backend::Tensor upload_row(backend::Backend& device, std::span<const float> values) {
  if (values.empty()) return {};
  return device.upload(values, 1, values.size());
}

}  // namespace

LayerWeights Decoder::load_layer(const model::ModelDir& dir, size_t layer, const LinearLoader& load_linear) const {
  LayerWeights weights;
  for (size_t i = 0; i < model::kLinearsPerLayer; ++i) {
    const model::LinearInfo info = dir.linear(layer, static_cast<model::LinearKind>(i));
    weights.raw[i] = load_linear(info);
    BW_CHECK(weights.raw[i].rows == info.out && weights.raw[i].cols == info.in);
    weights.biases[i] = upload_row(device_, dir.load_bias(info));
  }
  const model::LayerNorms norms = dir.load_norms(layer);
  weights.attention_in_norm = upload_row(device_, norms.attention_in);
  weights.attention_out_norm = upload_row(device_, norms.attention_out);
  weights.mlp_in_norm = upload_row(device_, norms.mlp_in);
  weights.mlp_out_norm = upload_row(device_, norms.mlp_out);
  weights.q_norm = upload_row(device_, norms.q);
  weights.k_norm = upload_row(device_, norms.k);
  return weights;
}

backend::Tensor Decoder::load_final_norm(const model::ModelDir& dir) const {
  return upload_row(device_, dir.load_final_norm());
}

backend::Tensor Decoder::embed(const model::ModelDir& dir, std::span<const uint32_t> ids) const {
  backend::HostTensor rows = device_.stage(ids.size(), config_.hidden);
  dir.load_embedding(ids, rows.view<float>());
  const backend::Tensor h = device_.upload(std::move(rows));
  if (config_.embedding_scale != 1.0f) device_.enqueue(backend::op::Scale{h, config_.embedding_scale});
  return h;
}

}  // namespace bw::nn
