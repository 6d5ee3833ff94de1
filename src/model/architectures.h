// The architecture table: everything that sets one decoder apart from another. Supporting one more that is made of the
// same parts is one more entry in architectures.cc.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "model/config.h"

namespace bw::model {

// Which layers see a sliding window only, where config.json has no "layer_types".
enum class SlidingRule {
  kNone,         // none, whatever config.json says
  kAll,          // all, if "sliding_window" is set
  kUpperLayers,  // with "use_sliding_window": those from "max_window_layers" on
  kPattern,      // all but every n-th, n = "sliding_window_pattern"
};

// Values that a config.json may leave out; those of the reference.
struct ConfigDefaults {
  size_t max_position = 2048;
  size_t head_dim = 0;        // 0: hidden / heads
  size_t sliding_window = 0;  // 0: none
  double rope_theta = 10000.0;
  double attention_scalar = 0.0;  // "query_pre_attn_scalar"
  Activation activation = Activation::kSilu;
  bool tied = false;
};

struct Architecture {
  std::string_view name;        // in "architectures"
  std::string_view model_type;  // in "model_type"

  bool qkv_bias = false;              // q, k, v always have biases
  bool reads_attention_bias = false;  // "attention_bias": biases of q, k, v, o
  bool reads_mlp_bias = false;        // "mlp_bias": biases of gate, up, down
  SlidingRule sliding = SlidingRule::kNone;
  bool two_ropes = false;               // sliding layers rotate by a base of their own
  float norm_offset = 0.0f;             // added to norm weights
  bool qk_norm = false;                 // norms of each head of q and k
  bool post_norms = false;              // four norms a layer
  bool scales_embedding = false;        // by sqrt(hidden)
  bool reads_attention_scalar = false;  // scores are scaled by "query_pre_attn_scalar"^-1/2, not head_dim^-1/2
  bool reads_final_softcap = false;     // "final_logit_softcapping"

  ConfigDefaults defaults;
};

// All that can be read.
std::span<const Architecture> architectures();
// Null if not in the table.
const Architecture* find_architecture(std::string_view name);
const Architecture* find_architecture_of_type(std::string_view model_type);

}  // namespace bw::model
