#include "model/architectures.h"

#include <algorithm>
#include <array>

namespace bw::model {
namespace {

constexpr std::array kArchitectures = {
    Architecture{
        .name = "LlamaForCausalLM",
        .model_type = "llama",
        .reads_attention_bias = true,
        .reads_mlp_bias = true,
        .defaults = {},
    },
    Architecture{
        .name = "MistralForCausalLM",
        .model_type = "mistral",
        .sliding = SlidingRule::kAll,
        .defaults = {.max_position = 131072, .sliding_window = 4096},
    },
    Architecture{
        .name = "Qwen2ForCausalLM",
        .model_type = "qwen2",
        .qkv_bias = true,
        .sliding = SlidingRule::kUpperLayers,
        .defaults = {.max_position = 32768, .sliding_window = 4096},
    },
    Architecture{
        .name = "Gemma3ForCausalLM",
        .model_type = "gemma3_text",
        .reads_attention_bias = true,
        .sliding = SlidingRule::kPattern,
        .two_ropes = true,
        .norm_offset = 1.0f,
        .qk_norm = true,
        .post_norms = true,
        .scales_embedding = true,
        .reads_attention_scalar = true,
        .reads_final_softcap = true,
        .defaults = {.max_position = 131072,
                     .head_dim = 256,
                     .sliding_window = 4096,
                     .rope_theta = 1000000.0,
                     .attention_scalar = 256.0,
                     .activation = Activation::kGeluTanh,
                     .tied = true},
    },
};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

const Architecture* find_architecture(std::string_view name) {
  const auto at =
      std::find_if(kArchitectures.begin(), kArchitectures.end(), [&](const auto& a) { return a.name == name; });
  return at == kArchitectures.end() ? nullptr : at;
}

const Architecture* find_architecture_of_type(std::string_view model_type) {
  const auto at = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                               [&](const auto& a) { return a.model_type == model_type; });
  return at == kArchitectures.end() ? nullptr : at;
}

}  // namespace bw::model
