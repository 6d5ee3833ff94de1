#include <array>

#include "base/check.h"
#include "bitwright/error.h"
#include "io/printable.h"
#include "model/model_dir.h"
#include "model/tensor_names.h"

namespace bw::model {

Matrix<float> ModelDir::load_linear(const LinearInfo& info) const {
  Matrix<float> weight(info.out, info.in);
  load_linear(info, weight.span());
  return weight;
}

void ModelDir::load_linear(const LinearInfo& info, std::span<float> out) const {
  BW_CHECK(out.size() == size_t{info.out} * info.in);
  const bool embedding = head_is_embedding_ && info.key == stored_name("lm_head");
  const std::string name = (embedding ? stored_name("model.embed_tokens") : info.key) + ".weight";
  const std::array<uint64_t, 2> shape = {info.out, info.in};
  io::read_floats(tensors_.require(name, shape), out);
}

std::vector<float> ModelDir::load_bias(const LinearInfo& info) const {
  if (!info.has_bias) return {};
  io::TensorData tensor = tensors_.require(info.key + ".bias");
  // Some writers of EXL2 pad the bias with the columns of q_weight, to a multiple of 32.
  const uint64_t padded = (uint64_t{info.out} + 31) / 32 * 32;
  const bool cut = quantized_ && tensor.shape().size() == 1 && tensor.shape()[0] == padded;
  const std::array<uint64_t, 1> shape = {info.out};
  if (!cut) tensor = tensors_.require(info.key + ".bias", shape);
  std::vector<float> bias(tensor.entry->elements());
  io::read_floats(tensor, bias);
  bias.resize(info.out);
  return bias;
}

std::vector<float> ModelDir::load_norm(const std::string& name, size_t size) const {
  io::TensorData tensor = tensors_.require(name);
  // ExLlamaV2 keeps the norms of the heads as a matrix whose rows are all the same.
  const std::vector<uint64_t>& shape = tensor.shape();
  const bool repeated = quantized_ && shape.size() == 2 && shape[0] >= 1 && shape[1] == size;
  const std::array<uint64_t, 1> expected = {size};
  if (!repeated) tensor = tensors_.require(name, expected);

  std::vector<float> norm(tensor.entry->elements());
  io::read_floats(tensor, norm);
  for (size_t i = size; i < norm.size(); ++i) {
    if (norm[i] == norm[i - size]) continue;
    throw Error(ErrorCode::kModel, path_.string() + ": tensor " + io::printable(name) +
                                       ": expected the same norm for every head, found different ones");
  }
  norm.resize(size);
  for (float& w : norm) w += config_.norm_offset;
  return norm;
}

LayerNorms ModelDir::load_norms(size_t layer) const {
  BW_CHECK(layer < config_.n_layers);
  const std::string base = prefix_ + "layers." + std::to_string(layer) + ".";
  const auto load = [&](std::string_view name, size_t size) {
    return load_norm(base + std::string(name) + ".weight", size);
  };
  LayerNorms norms;
  norms.attention_in = load(kInputNorm, config_.hidden);
  if (config_.post_norms) {
    norms.attention_out = load(kPostAttentionNorm, config_.hidden);
    norms.mlp_in = load(kPreMlpNorm, config_.hidden);
    norms.mlp_out = load(kPostMlpNorm, config_.hidden);
  } else {
    norms.mlp_in = load(kPostAttentionNorm, config_.hidden);
  }
  if (config_.qk_norm) {
    norms.q = load(kQNorm, config_.head_dim);
    norms.k = load(kKNorm, config_.head_dim);
  }
  return norms;
}

std::vector<float> ModelDir::load_final_norm() const {
  return load_norm(stored_name("model.norm.weight"), config_.hidden);
}

void ModelDir::load_embedding(std::span<const uint32_t> ids, MatrixView<float> out) const {
  BW_CHECK(out.rows == ids.size() && out.cols == config_.hidden);
  const io::TensorData tensor = tensors_.require(stored_name("model.embed_tokens.weight"));
  const size_t row_bytes = config_.hidden * io::element_size(tensor.type());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= vocab_rows_) {
      throw Error(ErrorCode::kModel,
                  path_.string() + ": token id " + std::to_string(ids[i]) + ", but the embedding has " +
                      std::to_string(vocab_rows_) + " rows",
                  "the tokenizer does not belong to this model");
    }
    io::convert_to_float(tensor.type(), tensor.bytes.subspan(ids[i] * row_bytes, row_bytes), out.row_span(i));
  }
}

}  // namespace bw::model
