// Names that tensors have inside a layer.
#pragma once

#include <array>
#include <string_view>

namespace bw::model {

inline constexpr std::string_view kInputNorm = "input_layernorm";
// After attention: with two norms a layer it is the input norm of the MLP, with four the output norm of attention.
inline constexpr std::string_view kPostAttentionNorm = "post_attention_layernorm";
inline constexpr std::string_view kPreMlpNorm = "pre_feedforward_layernorm";
inline constexpr std::string_view kPostMlpNorm = "post_feedforward_layernorm";
inline constexpr std::string_view kQNorm = "self_attn.q_norm";
inline constexpr std::string_view kKNorm = "self_attn.k_norm";

// Parts of a linear in EXL2, in the order in which codec gives them.
inline constexpr std::array<std::string_view, 5> kPackedSuffixes = {".q_weight", ".q_scale", ".q_scale_max",
                                                                    ".q_groups", ".q_invperm"};

}  // namespace bw::model
