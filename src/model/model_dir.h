// A Hugging Face model directory: config, tensors by role, checked against each other before any work begins.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/matrix.h"
#include "io/safetensors.h"
#include "model/config.h"

namespace bw::model {

// The linears of a decoder layer, in the order in which the forward pass meets them.
enum class LinearKind : uint8_t { kQ, kK, kV, kO, kGate, kUp, kDown };
inline constexpr size_t kLinearsPerLayer = 7;
// "q_proj"
std::string_view linear_name(LinearKind kind);

struct LinearInfo {
  LinearKind kind{};
  std::string key;  // "model.layers.3.self_attn.q_proj": tensors are KEY.weight, KEY.bias, or KEY.q_weight ... in EXL2
  size_t in = 0, out = 0;
  bool has_bias = false;
};

// Norm weights of a layer; empty where the architecture has none. With norm_offset already added.
struct LayerNorms {
  std::vector<float> attention_in, attention_out, mlp_in, mlp_out, q, k;
};

struct CheckedModel;

class ModelDir {
 public:
  // Reads config.json and the headers of all shards, and checks: architecture, shapes of every tensor against the
  // config, missing tensors, layers without tensors or tensors without layers, dtype, tied or stored head, already
  // quantized input. EXL2 directories are accepted only if `allow_quantized`. Throws Error(kModel) with one line.
  explicit ModelDir(const std::filesystem::path& path, bool allow_quantized = false);

  const std::filesystem::path& path() const { return path_; }
  const ModelConfig& config() const { return config_; }
  const io::OrderedJson& raw_config() const { return raw_config_; }
  const io::ShardSet& tensors() const { return tensors_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

  bool quantized() const { return quantized_; }  // EXL2
  // True if the head is the embedding (none is stored, or an equal one).
  bool head_is_embedding() const { return head_is_embedding_; }
  size_t vocab_rows() const { return vocab_rows_; }  // rows of the embedding; ids must be below
  size_t parameters() const;                         // weights of the model, a tied head counted once

  // Linears of a layer (weights live elsewhere: see load_linear), and the head as one more linear.
  LinearInfo linear(size_t layer, LinearKind kind) const;
  LinearInfo head() const;  // key stored_name("lm_head"); in = hidden, out = vocab_rows
  // "model.embed_tokens.weight" etc.: the stored name of a tensor that the reference calls `name` (prefixes vary).
  std::string stored_name(std::string_view name) const;
  // The inverse, for names that stored_name can give: what the reference calls the tensor.
  std::string reference_name(std::string_view stored) const;

  // True for a tensor that is part of the model; the others are dropped (see warnings()).
  bool uses(std::string_view stored) const { return used_.contains(stored); }

  // Reads a sample of all tensors' values: they must be finite.
  void check_values(const Findings& findings) const;

  // (out, in) float weights of an unquantized linear; KEY.weight, or the embedding for a tied head.
  Matrix<float> load_linear(const LinearInfo& info) const;
  // The same into `out` (out · in).
  void load_linear(const LinearInfo& info, std::span<float> out) const;
  std::vector<float> load_bias(const LinearInfo& info) const;  // (out), empty if none
  LayerNorms load_norms(size_t layer) const;
  std::vector<float> load_final_norm() const;
  // Rows of the embedding for the given ids, as float; out is (ids, hidden). Not yet scaled by embedding_scale.
  void load_embedding(std::span<const uint32_t> ids, MatrixView<float> out) const;
  // Hints: the tensors of this layer will be read soon / not any more.
  void prefetch_layer(size_t layer) const;
  void release_layer(size_t layer) const;

 private:
  friend CheckedModel check_model(const std::filesystem::path& path);
  // Where `findings` collects errors, the result is a model directory only if there are none.
  ModelDir(const std::filesystem::path& path, bool allow_quantized, const Findings& findings);
  void read_config(bool allow_quantized, const Findings& findings);
  // All but the config; what depends on what was found to be wrong is left out.
  void check_tensors(bool allow_quantized, const Findings& findings);
  // Each throws Error(kModel) for what it finds wrong.
  void find_prefix();
  void check_not_quantized(bool allow_quantized);
  void check_layer_count() const;
  void check_linear(const LinearInfo& info) const;
  void check_packed(const LinearInfo& info) const;
  void check_head();
  void check_vocabulary();
  void check_extra();
  // Names of the tensors that belong to a layer, whether they are stored or not.
  std::vector<std::string> layer_tensors(size_t layer) const;
  struct NormInfo {
    std::string name;
    size_t size = 0;
  };
  std::vector<NormInfo> layer_norms(size_t layer) const;
  std::vector<float> load_norm(const std::string& name, size_t size) const;

  std::filesystem::path path_;
  io::OrderedJson raw_config_;
  ModelConfig config_;
  io::ShardSet tensors_;
  std::vector<std::string> warnings_;
  std::set<std::string, std::less<>> used_;  // stored names
  std::string prefix_;                       // of everything but the head: "model."
  std::string head_prefix_;                  // of "lm_head"
  bool quantized_ = false;
  bool head_is_embedding_ = false;
  size_t vocab_rows_ = 0;
};

// All that is wrong or odd about a model directory, and the directory itself where nothing is wrong.
struct CheckedModel {
  std::vector<Finding> findings;  // errors, then warnings
  std::optional<ModelDir> dir;
};
// The checks of ModelDir's constructor, none left out because an earlier one has failed unless it depends on it, and a
// sample of all weights: they must be finite.
CheckedModel check_model(const std::filesystem::path& path);

}  // namespace bw::model
