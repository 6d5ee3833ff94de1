// config.json as typed, checked values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "io/safetensors.h"
#include "model/findings.h"

namespace bw::model {

enum class Activation { kSilu, kGeluTanh, kGelu };

enum class RopeScaling { kNone, kLinear, kDynamic, kLlama3 };

struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;        // llama3
  double high_freq_factor = 4.0;       // llama3
  uint64_t original_max_position = 0;  // llama3, dynamic; 0: max_position
};

// Everything the engine asks about a decoder; no field is left to a reader's guess.
struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM"
  std::string model_type;    // "llama"
  size_t hidden = 0;
  size_t intermediate = 0;
  size_t n_layers = 0;
  size_t n_heads = 0;
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  size_t vocab_size = 0;  // as in config.json; the embedding may have another number of rows
  size_t max_position = 0;
  float norm_eps = 1e-6f;
  float norm_offset = 0.0f;  // added to norm weights: 1 for Gemma
  bool qk_norm = false;      // RMSNorm of each head of q and k
  bool post_norms = false;   // norms after attention and after the MLP, before the residual sum (Gemma: four norms)
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  Activation activation = Activation::kSilu;
  float embedding_scale = 1.0f;    // multiplies the embedding's rows; a float, as in a reference that computes in float
  float attention_scale = 0.0f;    // multiplies q·k
  float attention_softcap = 0.0f;  // 0: none
  float final_softcap = 0.0f;      // 0: none
  size_t sliding_window = 0;       // positions a sliding layer sees, itself included; 0: no layer slides
  std::vector<bool> sliding;       // per layer
  RopeConfig rope;                 // of full-attention layers
  RopeConfig rope_sliding;         // of sliding layers
  bool tied = false;               // as config.json says; the stored head, if there is one, decides (see ModelDir)
  std::optional<uint32_t> bos;
  std::vector<uint32_t> eos;
  std::vector<std::string> notes;  // what a person should know about this config.json, a sentence each
};

// Reads both key styles (rope_theta / rope_scaling; Transformers 5's rope_parameters) and the
// documented aliases (n_head, n_layer, n_embd, ...). Throws Error(kModel) beginning with `name` for: unknown
// architecture (listing the known ones), a model that is already quantized, missing or impossible values, an unknown
// rope type. Where `findings` collects errors, the result is of use only if there are none.
ModelConfig parse_config(const io::Json& config, const std::string& name, const Findings& findings);
ModelConfig parse_config(const io::Json& config, const std::string& name);

// Names of the architectures that can be read.
std::vector<std::string> supported_architectures();

}  // namespace bw::model
