// The forward pass of a decoder, one layer at a time, on any backend.
//
// A layer is a chain of *sites*: a site is an input that one or more linears read. `begin` computes the input of the
// first site from the hidden states; `advance` runs the linears of a site and computes the input of the next one, or,
// after the last, the layer's output. The pipeline taps the inputs between the calls (Hessians) and exchanges weights
// before them.
//
//   site 0: q, k, v     input: norm(h)
//   site 1: o           input: attention output
//   site 2: gate, up    input: norm(h + attention)
//   site 3: down        input: act(gate) * up
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/model_dir.h"

namespace bw::nn {

inline constexpr size_t kSites = 4;
// Linears that read site `site`, in order.
std::span<const model::LinearKind> site_linears(size_t site);
size_t site_of(model::LinearKind kind);

// Rows of calibration (or of evaluation) that travel together: `sequences` rows of `length` tokens, tokens in row
// order.
struct RowBatch {
  size_t sequences = 0;
  size_t length = 0;
  size_t tokens() const { return sequences * length; }
};

// The state between two sites, for the tokens of one batch. x belongs to the next site.
struct Carry {
  backend::Tensor h;  // (T, hidden) residual stream
  backend::Tensor x;  // (T, site width)
};

// Weights of one decoder layer on the device.
struct LayerWeights {
  std::array<backend::Tensor, model::kLinearsPerLayer> raw;  // (out, in) as loaded; empty once dropped
  std::array<std::shared_ptr<const backend::Weight>, model::kLinearsPerLayer> linears;  // null until packed
  std::array<backend::Tensor, model::kLinearsPerLayer> biases;                          // (1, out); empty: none
  backend::Tensor attention_in_norm, attention_out_norm, mlp_in_norm, mlp_out_norm, q_norm, k_norm;  // empty: none
};

// Keys and values of past tokens of `sequences` rows, one pair per layer.
struct KvCache {
  KvCache(backend::Backend& device, const model::ModelConfig& config, size_t sequences, size_t capacity);
  size_t sequences, capacity;
  size_t length = 0;                  // positions filled
  std::vector<backend::Tensor> k, v;  // per layer (sequences * capacity, n_kv_heads * head_dim)
};

// Not thread-safe: it enqueues on one device, and keeps the rotation of the last batch. `device` and `config` must
// outlive it.
class Decoder {
 public:
  // `max_length`: longest row that will be asked for (sizes the rotation tables).
  Decoder(backend::Backend& device, const model::ModelConfig& config, size_t max_length, backend::Precision precision);

  // Brings a linear (out, in) to the device; quantized ones are unpacked there (see codec).
  using LinearLoader = std::function<backend::Tensor(const model::LinearInfo&)>;
  // Brings a layer's weights to the device, linears as `raw`: each is one copy, each bias and norm too.
  LayerWeights load_layer(const model::ModelDir& dir, size_t layer, const LinearLoader& load_linear) const;
  // Packs the linears that are not packed yet; raw ones are dropped unless they are to be kept.
  void pack(LayerWeights& weights, bool keep_raw) const;
  backend::Tensor load_final_norm(const model::ModelDir& dir) const;                 // (1, hidden)
  std::shared_ptr<const backend::Weight> pack(const backend::Tensor& weight) const;  // (out, in)

  // The embeddings (T, hidden) of ids (T), scaled where the architecture scales. One copy to the device.
  backend::Tensor embed(const model::ModelDir& dir, std::span<const uint32_t> ids) const;

  // carry.h must be set; sets carry.x to the input of site 0.
  void begin(const LayerWeights& weights, Carry& carry) const;
  // Runs the linears of `site` on carry.x. Afterwards carry.x is the input of site + 1; after the last site carry.h is
  // the layer's output and carry.x is empty. With a cache, `batch.length` new positions follow those cached (of more
  // than one sequence: 1, unless the cache is empty); the caller advances cache->length after the last layer.
  void advance(const LayerWeights& weights, size_t layer, size_t site, const RowBatch& batch, Carry& carry,
               KvCache* cache = nullptr) const;
  // begin and all four sites: h becomes the layer's output.
  void forward_layer(const LayerWeights& weights, size_t layer, const RowBatch& batch, backend::Tensor& h,
                     KvCache* cache = nullptr) const;
  // logits (T, vocab) of final hidden states h (T, hidden): norm, head, softcap. `final_norm` as loaded by
  // load_final_norm.
  void logits(const backend::Tensor& h, const backend::Tensor& final_norm,
              const std::shared_ptr<const backend::Weight>& head, const backend::Tensor& out) const;

  // The parts of a layer that its gradient is made of, too (see layer_gradient.h). y = linear(x); with `accumulate`, y
  // += linear(x).
  void run_linear(const LayerWeights& weights, model::LinearKind kind, const backend::Tensor& x,
                  const backend::Tensor& y, bool accumulate = false) const;
  backend::Tensor normed(const backend::Tensor& h, const backend::Tensor& norm) const;
  // Rotates q and k by the positions of their tokens in their rows, or back.
  void rotate(size_t layer, const RowBatch& batch, const backend::Tensor& q, const backend::Tensor& k,
              bool inverse) const;
  backend::AttentionShape attention_shape(size_t layer) const;
  backend::ActivationKind activation() const;

  backend::Backend& device() const { return device_; }
  const model::ModelConfig& config() const { return config_; }

 private:
  struct Rotation {
    backend::Tensor positions;  // (T, 1), rows of cos_sin
    backend::Tensor cos_sin;    // (row length, head_dim)
  };
  // Rotation tables of one kind of layer.
  struct RopeTables {
    backend::Tensor plain;  // (max_length, head_dim): cos | sin; for rows whose length does not matter
    // The last table made for rows whose length does (dynamic scaling).
    backend::Tensor scaled;
    size_t scaled_first = 0, scaled_length = 0;
  };

  void rotate_from(size_t layer, const RowBatch& batch, size_t first, const backend::Tensor& q,
                   const backend::Tensor& k, bool inverse) const;
  // Of `batch`, whose rows begin at position `first`. Kept for the next layer, which asks for the same.
  Rotation rotation(size_t layer, const RowBatch& batch, size_t first) const;
  backend::Tensor rope_rows(size_t layer, size_t first, size_t length) const;
  backend::Tensor attend(const LayerWeights& weights, size_t layer, const RowBatch& batch, const backend::Tensor& x,
                         KvCache* cache) const;
  backend::Tensor gate_and_up(const LayerWeights& weights, const backend::Tensor& x) const;
  // h += linear(x), through `norm` if there is one.
  void add_to_residual(const LayerWeights& weights, model::LinearKind kind, const backend::Tensor& norm,
                       const backend::Tensor& x, const backend::Tensor& h) const;

  backend::Backend& device_;
  const model::ModelConfig& config_;
  backend::Precision precision_;
  size_t max_length_;
  mutable RopeTables rope_full_, rope_sliding_;
  mutable backend::Tensor positions_;  // (T, 1), of rows of positions_length_ tokens
  mutable size_t positions_length_ = 0;
};

}  // namespace bw::nn
