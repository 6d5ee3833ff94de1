// From a model directory to the device.
#include "nn/decoder.h"

#include <algorithm>

namespace bw::nn {
namespace {

// Tokens whose embeddings pass through host memory at once.
constexpr size_t kEmbedTokens = 4096;

backend::Tensor upload_row(backend::Backend& device, std::span<const float> values) {
  if (values.empty()) return {};
  const backend::Tensor row = device.allocate(1, values.size());
  device.upload(row, values);
  return row;
}

}  // namespace

LayerWeights Decoder::load_layer(const model::ModelDir& dir, size_t layer, const LinearLoader& load_linear) const {
  LayerWeights weights;
  for (size_t i = 0; i < model::kLinearsPerLayer; ++i) {
    const model::LinearInfo info = dir.linear(layer, static_cast<model::LinearKind>(i));
    if (load_linear) {
      const Matrix<float> w = load_linear(info);
      BW_CHECK(w.rows() == info.out && w.cols() == info.in);
      weights.linears[i] = prepare(w);
    }
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

void Decoder::embed(const model::ModelDir& dir, std::span<const uint32_t> ids, const backend::Tensor& h) const {
  BW_CHECK(h.rows == ids.size() && h.cols == config_.hidden);
  Matrix<float> rows(std::min(ids.size(), kEmbedTokens), config_.hidden);
  for (size_t first = 0; first < ids.size(); first += kEmbedTokens) {
    const size_t count = std::min(kEmbedTokens, ids.size() - first);
    dir.load_embedding(ids.subspan(first, count), rows.view().rows_slice(0, count));
    device_.upload(h.rows_slice(first, count), std::span<const float>(rows.data(), count * config_.hidden));
  }
  if (config_.embedding_scale != 1.0f) device_.scale(h, config_.embedding_scale);
}

}  // namespace bw::nn
