#include "pipeline/stored_bits.h"

namespace bw::pipeline {

uint64_t stored_weight_bits(const model::ModelDir& dir, const model::LinearInfo& info) {
  const auto bytes_with_prefix = [&](const std::string& prefix) {
    uint64_t bytes = 0;
    for (const io::TensorEntry* e : dir.tensors().entries()) {
      if (e->name.starts_with(prefix) && !e->name.ends_with(".bias")) bytes += e->bytes;
    }
    return bytes;
  };
  const uint64_t bytes = bytes_with_prefix(info.key + ".");
  return 8 * (bytes != 0 ? bytes : bytes_with_prefix(dir.stored_name("model.embed_tokens.weight")));
}

double bpw_of_linears(const model::ModelDir& dir) {
  double bits = 0, weights = 0;
  for (size_t layer = 0; layer < dir.config().n_layers; ++layer) {
    for (size_t k = 0; k < model::kLinearsPerLayer; ++k) {
      const model::LinearInfo info = dir.linear(layer, static_cast<model::LinearKind>(k));
      bits += static_cast<double>(stored_weight_bits(dir, info));
      weights += static_cast<double>(info.in) * static_cast<double>(info.out);
    }
  }
  return bits / weights;
}

double bpw_of_head(const model::ModelDir& dir) {
  const model::LinearInfo head = dir.head();
  return static_cast<double>(stored_weight_bits(dir, head)) /
         (static_cast<double>(head.in) * static_cast<double>(head.out));
}

}  // namespace bw::pipeline
