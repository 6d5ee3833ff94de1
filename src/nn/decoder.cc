#include "nn/decoder.h"

#include <algorithm>

#include "nn/rope_table.h"

namespace bw::nn {
namespace {

using backend::Tensor;
using model::LinearKind;
namespace op = backend::op;

// Tokens that pass through a wide temporary at once: many enough for full speed, few enough to keep it small.
constexpr size_t kChunkTokens = 2048;
// Tokens that pass through a whole layer at once, where no cache ties the rows together.
constexpr size_t kLayerTokens = 4096;

constexpr std::array kAttentionInputs = {LinearKind::kQ, LinearKind::kK, LinearKind::kV};
constexpr std::array kAttentionOutput = {LinearKind::kO};
constexpr std::array kMlpInputs = {LinearKind::kGate, LinearKind::kUp};
constexpr std::array kMlpOutput = {LinearKind::kDown};

backend::ActivationKind activation_kind(model::Activation a) {
  switch (a) {
    case model::Activation::kSilu:
      return backend::ActivationKind::kSilu;
    case model::Activation::kGeluTanh:
      return backend::ActivationKind::kGeluTanh;
    case model::Activation::kGelu:
      return backend::ActivationKind::kGelu;
  }
  BW_CHECK(!"known activation");
  return {};
}

bool slides(const model::ModelConfig& config, size_t layer) {
  return config.sliding_window != 0 && layer < config.sliding.size() && config.sliding[layer];
}

// body(first, count) over chunks of at most `chunk` of n.
template <typename Body>
void for_chunks(size_t n, size_t chunk, const Body& body) {
  for (size_t first = 0; first < n; first += chunk) body(first, std::min(chunk, n - first));
}

// Stores the new rows (sequences * length, width) after the positions that the cache holds.
void store_in_cache(backend::Backend& device, const Tensor& rows, const RowBatch& batch, const KvCache& cache,
                    const Tensor& to) {
  for_chunks(batch.length == 1 ? 0 : batch.sequences, 1, [&](size_t s, size_t) {
    device.enqueue(op::Copy{rows.rows_slice(s * batch.length, batch.length),
                            to.rows_slice(s * cache.capacity + cache.length, batch.length)});
  });
  if (batch.length != 1) return;
  Tensor newest = to.rows_slice(cache.length, 1);  // this position of every sequence, in one copy
  newest.rows = cache.sequences;
  newest.stride = to.stride * cache.capacity;
  device.enqueue(op::Copy{rows, newest});
}

}  // namespace

std::span<const LinearKind> site_linears(size_t site) {
  BW_CHECK(site < kSites);
  switch (site) {
    case 0:
      return kAttentionInputs;
    case 1:
      return kAttentionOutput;
    case 2:
      return kMlpInputs;
    default:
      return kMlpOutput;
  }
}

size_t site_of(LinearKind kind) {
  for (size_t site = 0; site < kSites; ++site) {
    const auto linears = site_linears(site);
    if (std::find(linears.begin(), linears.end(), kind) != linears.end()) return site;
  }
  BW_CHECK(!"known linear");
  return kSites;
}

KvCache::KvCache(backend::Backend& device, const model::ModelConfig& config, size_t n_sequences, size_t n_positions)
    : sequences(n_sequences), capacity(n_positions) {
  for (size_t layer = 0; layer < config.n_layers; ++layer) {
    k.push_back(device.allocate(sequences * capacity, config.n_kv_heads * config.head_dim));
    v.push_back(device.allocate(sequences * capacity, config.n_kv_heads * config.head_dim));
  }
}

Decoder::Decoder(backend::Backend& device, const model::ModelConfig& config, size_t max_length,
                 backend::Precision precision)
    : device_(device), config_(config), precision_(precision), max_length_(max_length) {
  const auto plain = [&](const model::RopeConfig& rope) {
    const Matrix<float> table = rope_table(rope, config.head_dim, config.max_position, 0, 0, max_length);
    return device.upload(table.span(), max_length, config.head_dim);
  };
  rope_full_.plain = plain(config.rope);
  if (config.sliding_window != 0) rope_sliding_.plain = plain(config.rope_sliding);
}

std::shared_ptr<const backend::Weight> Decoder::pack(const Tensor& weight) const {
  return device_.pack_weight(weight, precision_);
}

void Decoder::pack(LayerWeights& weights, bool keep_raw) const {
  for (size_t i = 0; i < model::kLinearsPerLayer; ++i) {
    if (!weights.linears[i]) weights.linears[i] = pack(weights.raw[i]);
    if (!keep_raw) weights.raw[i] = {};
  }
}

void Decoder::begin(const LayerWeights& weights, Carry& carry) const {
  carry.x = normed(carry.h, weights.attention_in_norm);
}

void Decoder::advance(const LayerWeights& weights, size_t layer, size_t site, const RowBatch& batch, Carry& carry,
                      KvCache* cache) const {
  BW_CHECK(site < kSites && layer < config_.n_layers);
  BW_CHECK(carry.h.rows == batch.tokens() && carry.x.rows == batch.tokens());
  switch (site) {
    case 0:
      carry.x = attend(weights, layer, batch, carry.x, cache);
      break;
    case 1:
      add_to_residual(weights, LinearKind::kO, weights.attention_out_norm, carry.x, carry.h);
      carry.x = normed(carry.h, weights.mlp_in_norm);
      break;
    case 2:
      carry.x = gate_and_up(weights, carry.x);
      break;
    default:
      add_to_residual(weights, LinearKind::kDown, weights.mlp_out_norm, carry.x, carry.h);
      carry.x = {};
  }
}

void Decoder::forward_layer(const LayerWeights& weights, size_t layer, const RowBatch& batch, Tensor& h,
                            KvCache* cache) const {
  if (batch.tokens() == 0) return;
  const size_t at_once = cache ? batch.sequences : std::max<size_t>(1, kLayerTokens / batch.length);
  for_chunks(batch.sequences, at_once, [&](size_t first, size_t count) {
    const RowBatch rows{count, batch.length};
    Carry carry{h.rows_slice(first * batch.length, rows.tokens()), {}};
    begin(weights, carry);
    advance(weights, layer, 0, rows, carry, cache);
    advance(weights, layer, 1, rows, carry);
    for_chunks(rows.tokens(), kLayerTokens, [&](size_t token, size_t tokens) {  // the MLP knows no rows
      Carry part{carry.h.rows_slice(token, tokens), carry.x.rows_slice(token, tokens)};
      advance(weights, layer, 2, {1, tokens}, part);
      advance(weights, layer, 3, {1, tokens}, part);
    });
  });
}

void Decoder::logits(const Tensor& h, const Tensor& final_norm, const std::shared_ptr<const backend::Weight>& head,
                     const Tensor& out) const {
  device_.enqueue(op::Linear{normed(h, final_norm), head, {}, out});
  if (config_.final_softcap != 0.0f) device_.enqueue(op::Softcap{out, config_.final_softcap});
}

Tensor Decoder::normed(const Tensor& h, const Tensor& norm) const {
  const Tensor x = device_.allocate(h.rows, h.cols);
  device_.enqueue(op::RmsNorm{h, norm, config_.norm_eps, x});
  return x;
}

void Decoder::run_linear(const LayerWeights& weights, LinearKind kind, const Tensor& x, const Tensor& y,
                         bool accumulate) const {
  const size_t i = static_cast<size_t>(kind);
  BW_CHECK(weights.linears[i] != nullptr);
  device_.enqueue(op::Linear{x, weights.linears[i], weights.biases[i], y, accumulate});
}

void Decoder::rotate_from(size_t layer, const RowBatch& batch, size_t first, const Tensor& q, const Tensor& k,
                          bool inverse) const {
  const Rotation r = rotation(layer, batch, first);
  for (const Tensor* t : {&q, &k}) {
    device_.enqueue(op::Rope{*t, config_.head_dim, r.positions, r.cos_sin, inverse});
  }
}

void Decoder::rotate(size_t layer, const RowBatch& batch, const Tensor& q, const Tensor& k, bool inverse) const {
  rotate_from(layer, batch, 0, q, k, inverse);
}

backend::AttentionShape Decoder::attention_shape(size_t layer) const {
  return {config_.n_heads,         config_.n_kv_heads,        config_.head_dim,
          config_.attention_scale, config_.attention_softcap, slides(config_, layer) ? config_.sliding_window : 0};
}

backend::ActivationKind Decoder::activation() const { return activation_kind(config_.activation); }

Tensor Decoder::attend(const LayerWeights& weights, size_t layer, const RowBatch& batch, const Tensor& x,
                       KvCache* cache) const {
  const size_t width = config_.n_heads * config_.head_dim, kv_width = config_.n_kv_heads * config_.head_dim;
  const Tensor q = device_.allocate(x.rows, width);
  const Tensor k = device_.allocate(x.rows, kv_width), v = device_.allocate(x.rows, kv_width);
  run_linear(weights, LinearKind::kQ, x, q);
  run_linear(weights, LinearKind::kK, x, k);
  run_linear(weights, LinearKind::kV, x, v);
  if (!weights.q_norm.empty()) device_.enqueue(op::RmsNorm{q, weights.q_norm, config_.norm_eps, q});
  if (!weights.k_norm.empty()) device_.enqueue(op::RmsNorm{k, weights.k_norm, config_.norm_eps, k});
  rotate_from(layer, batch, cache ? cache->length : 0, q, k, false);
  const backend::AttentionShape shape = attention_shape(layer);
  if (cache) {
    BW_CHECK(batch.sequences == cache->sequences && cache->length + batch.length <= cache->capacity);
    BW_CHECK(cache->length == 0 || batch.length == 1 || batch.sequences == 1);
    store_in_cache(device_, k, batch, *cache, cache->k[layer]);
    store_in_cache(device_, v, batch, *cache, cache->v[layer]);
  }
  const Tensor out = device_.allocate(x.rows, width);
  if (cache && cache->length != 0) {
    for_chunks(batch.length, 1, [&](size_t t, size_t) {  // each new position sees those before it
      device_.enqueue(op::AttentionCached{q.rows_slice(t * batch.sequences, batch.sequences), cache->k[layer],
                                          cache->v[layer], cache->capacity, cache->length + t + 1, shape,
                                          out.rows_slice(t * batch.sequences, batch.sequences)});
    });
  } else {
    device_.enqueue(op::Attention{q, k, v, batch.sequences, shape, out});
  }
  return out;
}

Tensor Decoder::gate_and_up(const LayerWeights& weights, const Tensor& x) const {
  const Tensor gate = device_.allocate(x.rows, config_.intermediate);
  const Tensor up = device_.allocate(std::min(x.rows, kChunkTokens), config_.intermediate);
  for_chunks(x.rows, kChunkTokens, [&](size_t first, size_t count) {
    const Tensor in = x.rows_slice(first, count), out = gate.rows_slice(first, count), other = up.rows_slice(0, count);
    run_linear(weights, LinearKind::kGate, in, out);
    run_linear(weights, LinearKind::kUp, in, other);
    device_.enqueue(op::GatedActivation{out, other, activation(), out});
  });
  return gate;
}

void Decoder::add_to_residual(const LayerWeights& weights, LinearKind kind, const Tensor& norm, const Tensor& x,
                              const Tensor& h) const {
  if (norm.empty()) return run_linear(weights, kind, x, h, true);
  const Tensor sum = device_.allocate(std::min(x.rows, kChunkTokens), h.cols);
  for_chunks(x.rows, kChunkTokens, [&](size_t first, size_t count) {
    const Tensor part = sum.rows_slice(0, count);
    run_linear(weights, kind, x.rows_slice(first, count), part);
    device_.enqueue(op::RmsNorm{part, norm, config_.norm_eps, part});
    device_.enqueue(op::Add{part, h.rows_slice(first, count)});
  });
}

Decoder::Rotation Decoder::rotation(size_t layer, const RowBatch& batch, size_t first) const {
  const size_t tokens = batch.tokens();
  if (positions_length_ != batch.length || positions_.rows < tokens) {
    std::vector<int32_t> positions(tokens);
    for (size_t t = 0; t < tokens; ++t) positions[t] = static_cast<int32_t>(t % batch.length);
    positions_ = device_.upload(std::span<const int32_t>(positions), tokens, 1);
    positions_length_ = batch.length;
  }
  return {positions_.rows_slice(0, tokens), rope_rows(layer, first, batch.length)};
}

Tensor Decoder::rope_rows(size_t layer, size_t first, size_t length) const {
  const size_t end = first + length;
  BW_CHECK(end <= max_length_);
  const bool sliding = slides(config_, layer);
  const model::RopeConfig& rope = sliding ? config_.rope_sliding : config_.rope;
  RopeTables& tables = sliding ? rope_sliding_ : rope_full_;
  if (!depends_on_length(rope, config_.max_position, end)) return tables.plain.rows_slice(first, length);
  if (tables.scaled.empty() || tables.scaled_first != first || tables.scaled_length != length) {
    const Matrix<float> table = rope_table(rope, config_.head_dim, config_.max_position, end, first, length);
    tables.scaled = device_.upload(table.span(), length, config_.head_dim);
    tables.scaled_first = first;
    tables.scaled_length = length;
  }
  return tables.scaled;
}

}  // namespace bw::nn
