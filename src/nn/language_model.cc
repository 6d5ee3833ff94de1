#include "nn/language_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "bitwright/error.h"

namespace bw::nn {

LanguageModel::LanguageModel(backend::Backend& device, const model::ModelDir& dir, size_t max_length,
                             backend::Precision precision, const Decoder::LinearLoader& load_linear)
    : dir_(dir), decoder_(device, dir.config(), max_length, precision) {
  for (size_t layer = 0; layer < dir.config().n_layers; ++layer) {
    layers_.push_back(decoder_.load_layer(dir, layer, load_linear));
    decoder_.pack(layers_.back(), false);
    dir.release_layer(layer);
  }
  final_norm_ = decoder_.load_final_norm(dir);
  head_ = decoder_.pack(load_linear(dir.head()));
}

backend::Tensor LanguageModel::step(std::span<const uint32_t> ids, size_t length, KvCache& cache) const {
  backend::Backend& device = decoder_.device();
  const RowBatch batch{cache.sequences, length};
  BW_CHECK(ids.size() == batch.tokens() && length > 0 && cache.length + length <= cache.capacity);
  backend::Tensor h = decoder_.embed(dir_, ids);
  for (size_t layer = 0; layer < layers_.size(); ++layer)
    decoder_.forward_layer(layers_[layer], layer, batch, h, &cache);
  cache.length += length;
  backend::Tensor last = h;
  if (length > 1) {
    last = device.allocate(cache.sequences, h.cols);
    for (size_t s = 0; s < cache.sequences; ++s)
      device.enqueue(backend::op::Copy{h.rows_slice((s + 1) * length - 1, 1), last.rows_slice(s, 1)});
  }
  backend::Tensor out = device.allocate(cache.sequences, head_->out());
  decoder_.logits(last, final_norm_, head_, out);
  return out;
}

void make_room(backend::Backend& device, const model::ModelConfig& config, size_t length, KvCache& cache) {
  if (length <= cache.capacity) return;
  KvCache larger(device, config, cache.sequences, std::max(length, 2 * cache.capacity));
  larger.length = cache.length;
  const auto move_rows = [&](const backend::Tensor& from, const backend::Tensor& to) {
    for (size_t s = 0; s < cache.sequences && cache.length > 0; ++s) {
      device.enqueue(backend::op::Copy{from.rows_slice(s * cache.capacity, cache.length),
                                       to.rows_slice(s * larger.capacity, cache.length)});
    }
  };
  for (size_t layer = 0; layer < cache.k.size(); ++layer) {
    move_rows(cache.k[layer], larger.k[layer]);
    move_rows(cache.v[layer], larger.v[layer]);
  }
  cache = std::move(larger);
}

namespace {

// One comparison says that all is well: -inf alone is allowed, as the logit of a token that cannot be.
void check_finite(std::span<const float> logits) {
  const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !(x < INFINITY); });
  if (bad == logits.end()) return;
  throw Error(ErrorCode::kNumeric, fmt::format("the model's logit of token {} is {}", bad - logits.begin(), *bad),
              "its weights are damaged, or its activations are too large for the arithmetic");
}

}  // namespace

namespace {

// The tokens that may be drawn, the most likely first, and the sum of their weights. p: weights, the largest is 1.
std::vector<uint32_t> kept_tokens(std::span<const float> p, const Sampling& sampling, double& mass) {
  std::vector<uint32_t> order(p.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return p[a] > p[b]; });
  if (sampling.top_k != 0) order.resize(std::min(order.size(), sampling.top_k));
  double sum = 0;
  for (const uint32_t i : order) sum += p[i];
  size_t kept = 0;
  mass = 0;
  while (kept < order.size() && (kept == 0 || (mass < sampling.top_p * sum && p[order[kept]] >= sampling.min_p))) {
    mass += p[order[kept++]];
  }
  order.resize(kept);
  return order;
}

}  // namespace

uint32_t sample(std::span<const float> logits, const Sampling& sampling, double u) {
  BW_CHECK(!logits.empty());
  check_finite(logits);
  const auto top = static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (sampling.temperature <= 0) return top;
  const float largest = logits[top];
  std::vector<float> p(logits.size());
  for (size_t i = 0; i < p.size(); ++i) p[i] = std::exp((logits[i] - largest) / sampling.temperature);
  const bool all = sampling.top_p >= 1 && sampling.min_p <= 0 && (sampling.top_k == 0 || sampling.top_k >= p.size());
  std::vector<uint32_t> order;
  double mass = 0;
  if (all) {
    for (const float x : p) mass += x;
  } else {
    order = kept_tokens(p, sampling, mass);
  }
  const size_t n = all ? p.size() : order.size();
  double left = u * mass;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t token = all ? static_cast<uint32_t>(i) : order[i];
    left -= p[token];
    if (left < 0) return token;
  }
  return all ? top : order[0];
}

double probability(std::span<const float> logits, uint32_t token) {
  BW_CHECK(token < logits.size());
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x - largest));
  return std::exp(static_cast<double>(logits[token] - largest)) / sum;
}

}  // namespace bw::nn
