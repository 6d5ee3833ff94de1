#include "model/config.h"

#include <cmath>

#include <gtest/gtest.h>

#include "io/json.h"
#include "model/architectures.h"
#include "support/errors.h"
#include "support/tiny_model.h"

namespace bw::model {
namespace {

using io::Json;
using test::expect_error;

Json tiny(const std::string& architecture = "LlamaForCausalLM") {
  return Json::parse(test::make_tiny_model(architecture).config.dump());
}

// `config` with some keys changed; null is a value of its own, a key of "erase" goes.
Json with(Json config, const Json& changes, std::initializer_list<const char*> erase = {}) {
  for (const auto& [key, value] : changes.items()) config[key] = value;
  for (const char* key : erase) config.erase(key);
  return config;
}

ModelConfig parse(const Json& config) { return parse_config(config, "dir/config.json"); }

void refused(const Json& config, std::initializer_list<std::string_view> words) {
  expect_error([&] { parse(config); }, ErrorCode::kModel, {"dir/config.json: "});
  expect_error([&] { parse(config); }, ErrorCode::kModel, words);
}

void expect_same_rope(const RopeConfig& a, const RopeConfig& b) {
  EXPECT_EQ(a.theta, b.theta);
  EXPECT_EQ(a.scaling, b.scaling);
  EXPECT_EQ(a.factor, b.factor);
  EXPECT_EQ(a.low_freq_factor, b.low_freq_factor);
  EXPECT_EQ(a.high_freq_factor, b.high_freq_factor);
  EXPECT_EQ(a.original_max_position, b.original_max_position);
}

TEST(ParseConfig, ReadsALlama) {
  const ModelConfig c = parse(tiny());
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
  EXPECT_EQ(c.model_type, "llama");
  EXPECT_EQ(c.hidden, 64u);
  EXPECT_EQ(c.intermediate, 96u);
  EXPECT_EQ(c.n_layers, 2u);
  EXPECT_EQ(c.n_heads, 4u);
  EXPECT_EQ(c.n_kv_heads, 2u);
  EXPECT_EQ(c.head_dim, 16u);
  EXPECT_EQ(c.vocab_size, 96u);
  EXPECT_EQ(c.max_position, 256u);
  EXPECT_EQ(c.norm_eps, 1e-6f);
  EXPECT_EQ(c.norm_offset, 0.0f);
  EXPECT_FALSE(c.qk_norm || c.post_norms || c.qkv_bias || c.o_bias || c.mlp_bias);
  EXPECT_EQ(c.activation, Activation::kSilu);
  EXPECT_EQ(c.embedding_scale, 1.0f);
  EXPECT_EQ(c.attention_scale, 0.25f);
  EXPECT_EQ(c.sliding_window, 0u);
  EXPECT_EQ(c.sliding, (std::vector<bool>{false, false}));
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(c.bos, 1u);
  EXPECT_EQ(c.eos, std::vector<uint32_t>{2});
  EXPECT_TRUE(c.notes.empty());
}

TEST(ParseConfig, BiasesFollowTheArchitecture) {
  const ModelConfig llama = parse(with(tiny(), {{"attention_bias", true}}));
  EXPECT_TRUE(llama.qkv_bias && llama.o_bias && !llama.mlp_bias);
  EXPECT_TRUE(parse(with(tiny(), {{"mlp_bias", true}})).mlp_bias);
  const ModelConfig qwen = parse(with(tiny("Qwen2ForCausalLM"), {{"attention_bias", true}, {"mlp_bias", true}}));
  EXPECT_TRUE(qwen.qkv_bias && !qwen.o_bias && !qwen.mlp_bias);
}

TEST(ParseConfig, ReadsAGemma) {
  const ModelConfig c = parse(with(tiny("Gemma3ForCausalLM"), {{"query_pre_attn_scalar", 100},
                                                               {"final_logit_softcapping", 30.0},
                                                               {"hidden_size", 640},
                                                               {"num_hidden_layers", 7},
                                                               {"rope_theta", 1e6},
                                                               {"rope_local_base_freq", 5e3}}));
  EXPECT_EQ(c.norm_offset, 1.0f);
  EXPECT_TRUE(c.qk_norm && c.post_norms);
  EXPECT_EQ(c.activation, Activation::kGeluTanh);
  EXPECT_EQ(c.embedding_scale, static_cast<float>(std::sqrt(640.0)));  // not rounded to bfloat16
  EXPECT_EQ(c.attention_scale, 0.1f);
  EXPECT_EQ(c.final_softcap, 30.0f);
  EXPECT_EQ(c.sliding_window, 8u);
  EXPECT_EQ(c.sliding, (std::vector<bool>{true, true, true, true, true, false, true}));
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_EQ(c.rope_sliding.theta, 5e3);
}

TEST(ParseConfig, GemmaHasDefaults) {
  const ModelConfig c = parse(with(
      tiny("Gemma3ForCausalLM"), {},
      {"head_dim", "rope_theta", "tie_word_embeddings", "sliding_window", "rms_norm_eps", "max_position_embeddings"}));
  EXPECT_EQ(c.head_dim, 256u);
  EXPECT_EQ(c.attention_scale, 0.0625f);
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_EQ(c.rope_sliding.theta, 1e4);
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(c.sliding_window, 4096u);
  EXPECT_EQ(c.norm_eps, 1e-6f);
  EXPECT_EQ(c.max_position, 131072u);
}

TEST(ParseConfig, GemmaPatterns) {
  const Json gemma = tiny("Gemma3ForCausalLM");
  const std::vector<bool> alternating = {true, false};
  EXPECT_EQ(parse(with(gemma, {{"sliding_window_pattern", 2}})).sliding, alternating);
  EXPECT_EQ(parse(with(gemma, {{"_sliding_window_pattern", 2}})).sliding, alternating);
  EXPECT_EQ(
      parse(with(gemma, {{"sliding_window_pattern", 6}, {"layer_types", {"full_attention", "sliding_attention"}}}))
          .sliding,
      (std::vector<bool>{false, true}));
  refused(with(gemma, {{"sliding_window_pattern", 0}}), {"sliding_window_pattern", "found 0"});
  refused(with(gemma, {{"layer_types", {"full_attention"}}}), {"layer_types", "list of 2", "found 1"});
  refused(with(gemma, {{"layer_types", {"full_attention", "linear_attention"}}}), {"layer_types", "linear_attention"});
  refused(with(gemma, {{"sliding_window", nullptr}}), {"no sliding_window"});
  refused(with(gemma, {{"use_bidirectional_attention", true}}), {"use_bidirectional_attention"});
  const ModelConfig capped = parse(with(gemma, {{"attn_logit_softcapping", 50.0}}));
  EXPECT_EQ(capped.attention_softcap, 0.0f);
  ASSERT_EQ(capped.notes.size(), 1u);
}

TEST(ParseConfig, GemmaRopeOfEachLayerType) {
  const Json full = {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}};
  const ModelConfig a = parse(with(
      tiny("Gemma3ForCausalLM"),
      {{"rope_parameters", {{"full_attention", full}, {"sliding_attention", {{"rope_theta", 2e4}}}}}}, {"rope_theta"}));
  const ModelConfig b = parse(with(
      tiny("Gemma3ForCausalLM"),
      {{"rope_scaling", {{"type", "linear"}, {"factor", 8.0}}}, {"rope_theta", 1e6}, {"rope_local_base_freq", 2e4}}));
  EXPECT_EQ(a.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(a.rope.factor, 8.0);
  EXPECT_EQ(a.rope_sliding.scaling, RopeScaling::kNone);
  EXPECT_EQ(a.rope_sliding.theta, 2e4);
  expect_same_rope(a.rope, b.rope);
  expect_same_rope(a.rope_sliding, b.rope_sliding);
  refused(with(tiny("Gemma3ForCausalLM"), {{"rope_parameters", {{"rope_theta", 1e6}}}}),
          {"rope_parameters", "full_attention"});
  refused(with(tiny(), {{"rope_parameters", {{"full_attention", full}}}}), {"rope_parameters", "layer type"});
}

TEST(ParseConfig, SlidingWindowsOfMistralAndQwen) {
  const Json mistral = tiny("MistralForCausalLM");
  EXPECT_EQ(parse(mistral).sliding, (std::vector<bool>{false, false}));  // null: none
  EXPECT_EQ(parse(with(mistral, {}, {"sliding_window"})).sliding_window, 4096u);
  const ModelConfig all = parse(with(mistral, {{"sliding_window", 9}}));
  EXPECT_EQ(all.sliding, (std::vector<bool>{true, true}));
  EXPECT_EQ(all.sliding_window, 9u);

  const Json qwen = with(tiny("Qwen2ForCausalLM"), {{"sliding_window", 9}, {"max_window_layers", 1}});
  EXPECT_EQ(parse(qwen).sliding_window, 0u);
  const ModelConfig upper = parse(with(qwen, {{"use_sliding_window", true}}));
  EXPECT_EQ(upper.sliding, (std::vector<bool>{false, true}));
  EXPECT_EQ(upper.sliding_window, 9u);
  EXPECT_EQ(parse(with(qwen, {{"use_sliding_window", true}}, {"max_window_layers"})).sliding_window, 0u);
  EXPECT_EQ(parse(with(qwen, {{"use_sliding_window", true}, {"max_window_layers", 0}})).sliding,
            (std::vector<bool>{true, true}));
  const Json types = {"sliding_attention", "full_attention"};
  EXPECT_EQ(parse(with(qwen, {{"use_sliding_window", true}, {"layer_types", types}})).sliding,
            (std::vector<bool>{true, false}));
  EXPECT_EQ(parse(with(tiny(), {{"sliding_window", 9}})).sliding_window, 0u);  // Llama has none
}

TEST(ParseConfig, RefusesAnUnknownArchitectureAndListsTheKnown) {
  refused(with(tiny(), {{"architectures", {"FooForCausalLM"}}}),
          {"FooForCausalLM", "LlamaForCausalLM", "Gemma3ForCausalLM"});
  refused(with(tiny(), {{"model_type", "foo"}}, {"architectures"}), {"model_type 'foo'", "Qwen2ForCausalLM"});
  refused(with(tiny(), {}, {"architectures", "model_type"}), {"neither", "supported are"});
  refused(with(tiny(), {{"architectures", "LlamaForCausalLM"}}), {"architectures", "list"});
  refused(with(tiny(), {{"model_type", "qwen2"}}), {"LlamaForCausalLM", "'llama'", "'qwen2'"});
  refused(with(tiny(), {{"model_type", 7}}), {"model_type", "string"});
  for (const std::string& name : supported_architectures()) EXPECT_EQ(parse(tiny(name)).architecture, name);
}

TEST(ParseConfig, ModelTypeDecidesWithoutOneArchitecture) {
  EXPECT_EQ(parse(with(tiny("Qwen2ForCausalLM"), {}, {"architectures"})).architecture, "Qwen2ForCausalLM");
  EXPECT_EQ(parse(with(tiny(), {{"architectures", {"X", "LlamaForCausalLM"}}})).architecture, "LlamaForCausalLM");
  EXPECT_EQ(parse(with(tiny(), {{"architectures", nullptr}})).architecture, "LlamaForCausalLM");
  EXPECT_EQ(parse(with(tiny(), {}, {"model_type"})).model_type, "llama");
}

TEST(ParseConfig, KeysHaveAliasesAndDefaults) {
  const Json renamed =
      with(tiny(), {{"n_embd", 64.0}, {"n_layer", 2}, {"n_head", 4}, {"n_positions", 256.0}, {"n_inner", 96}},
           {"hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings", "intermediate_size",
            "num_key_value_heads", "head_dim"});
  const ModelConfig c = parse(renamed);
  EXPECT_EQ(c.hidden, 64u);
  EXPECT_EQ(c.n_layers, 2u);
  EXPECT_EQ(c.n_heads, 4u);
  EXPECT_EQ(c.n_kv_heads, 4u);
  EXPECT_EQ(c.head_dim, 16u);
  EXPECT_EQ(c.max_position, 256u);
  EXPECT_EQ(parse(with(tiny(), {{"head_dim", nullptr}, {"num_key_value_heads", nullptr}})).n_kv_heads, 4u);
  refused(with(tiny(), {{"n_embd", 65}}), {"hidden_size is 64", "n_embd is 65"});
}

TEST(ParseConfig, RefusesImpossibleNumbers) {
  for (const Json& bad :
       {Json(0), Json(-64), Json(64.5), Json("64"), Json(1e30), Json(true), Json::array(), Json(UINT64_MAX)}) {
    for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                            "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings"}) {
      refused(with(tiny(), {{key, bad}}), {key, "whole number"});
    }
  }
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
    refused(with(tiny(), {}, {key}), {key, "missing"});
  }
  refused(with(tiny(), {{"num_key_value_heads", 3}}), {"num_attention_heads 4", "num_key_value_heads 3"});
  refused(with(tiny(), {{"num_attention_heads", 6}}, {"head_dim"}), {"hidden_size 64", "num_attention_heads 6"});
  refused(with(tiny(), {{"head_dim", 15}}), {"head_dim 15", "odd"});
  refused(with(tiny(), {{"head_dim", 1 << 28}}), {"too large"});
  refused(with(tiny(), {{"rms_norm_eps", -1}}), {"rms_norm_eps", "above 0"});
  refused(with(tiny(), {{"tie_word_embeddings", "yes"}}), {"tie_word_embeddings", "true or false"});
  refused(with(tiny(), {{"hidden_act", "relu"}}), {"hidden_act", "relu", "silu"});
  refused(Json::array(), {"not a JSON object"});
}

TEST(ParseConfig, BothRopeStyles) {
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 64}};
  const ModelConfig older = parse(with(tiny(), {{"rope_theta", 5e5}, {"rope_scaling", llama3}}));
  const ModelConfig newer =
      parse(with(tiny(), {{"rope_parameters", with(llama3, {{"rope_theta", 5e5}})}}, {"rope_theta"}));
  EXPECT_EQ(older.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(older.rope.theta, 5e5);
  EXPECT_EQ(older.rope.original_max_position, 64u);
  expect_same_rope(older.rope, newer.rope);
  expect_same_rope(older.rope, older.rope_sliding);
  // Both at once, as we write them ourselves.
  expect_same_rope(parse(with(tiny(), {{"rope_theta", 5e5},
                                       {"rope_scaling", llama3},
                                       {"rope_parameters", with(llama3, {{"rope_theta", 5e5}})}}))
                       .rope,
                   older.rope);

  EXPECT_EQ(parse(with(tiny(), {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}}, {"rope_theta"}))
                .rope.theta,
            1e6);
  EXPECT_EQ(parse(with(tiny(), {}, {"rope_theta"})).rope.theta, 1e4);
  EXPECT_EQ(parse(with(tiny(), {{"rope_scaling", {{"type", "linear"}, {"factor", 4}}}})).rope.factor, 4.0);
  const ModelConfig dynamic =
      parse(with(tiny(), {{"rope_scaling", {{"type", "dynamic"}, {"rope_type", "dynamic"}, {"factor", 2}}}}));
  EXPECT_EQ(dynamic.rope.scaling, RopeScaling::kDynamic);
  EXPECT_EQ(dynamic.rope.original_max_position, 256u);
}

TEST(ParseConfig, RefusesRopeItDoesNotKnow) {
  const auto scaling = [](const Json& value) { return with(tiny(), {{"rope_scaling", value}}); };
  refused(scaling({{"type", "foo"}, {"factor", 2}}), {"rope_scaling", "'foo'", "llama3"});
  refused(scaling({{"rope_type", "yarn"}, {"factor", 2}}), {"'yarn'"});
  refused(scaling({{"rope_type", "longrope"}, {"short_factor", {1}}}), {"'longrope'"});
  refused(scaling({{"rope_type", "linear"}, {"type", "dynamic"}, {"factor", 2}}), {"'linear'", "'dynamic'"});
  refused(scaling({{"rope_type", "linear"}}), {"factor is missing"});
  refused(scaling({{"rope_type", "linear"}, {"factor", "x"}}), {"factor", "above 0"});
  refused(scaling({{"rope_type", "llama3"}, {"factor", 8}, {"high_freq_factor", 4}}), {"low_freq_factor is missing"});
  refused(scaling({{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}),
          {"high_freq_factor"});
  refused(scaling("linear"), {"rope_scaling", "not a JSON object"});
  refused(with(tiny(), {{"partial_rotary_factor", 0.5}}), {"partial_rotary_factor"});
  refused(with(tiny(), {{"rope_theta", 0}}), {"rope_theta"});
  refused(
      with(tiny(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}, {"rope_parameters", {{"rope_theta", 1e4}}}}),
      {"rope_scaling and rope_parameters contradict"});
}

TEST(ParseConfig, SpecialTokensMayBeOdd) {
  const auto tokens = [](const Json& bos, const Json& eos) {
    return parse(with(tiny(), {{"bos_token_id", bos}, {"eos_token_id", eos}, {"pad_token_id", -1}}));
  };
  EXPECT_FALSE(tokens(nullptr, nullptr).bos);
  EXPECT_TRUE(tokens(nullptr, nullptr).eos.empty());
  EXPECT_TRUE(tokens(nullptr, nullptr).notes.empty());
  EXPECT_EQ(tokens(3.0, Json{5, 7}).bos, 3u);
  EXPECT_EQ(tokens(3, Json{5, 7}).eos, (std::vector<uint32_t>{5, 7}));
  for (const Json& odd : {Json{1, 2}, Json(-1), Json("<s>"), Json(1e20)}) {
    EXPECT_FALSE(tokens(odd, 2).bos);
    EXPECT_EQ(tokens(odd, 2).notes.size(), 1u);
  }
  EXPECT_EQ(tokens(1, Json{-1, 2}).eos, std::vector<uint32_t>{2});
  const ModelConfig none = parse(with(tiny(), {}, {"bos_token_id", "eos_token_id"}));
  EXPECT_TRUE(!none.bos && none.eos.empty());
}

TEST(ParseConfig, RefusesWhatIsQuantizedAlready) {
  refused(with(tiny(), {{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}}),
          {"already quantized", "gptq", "4 bits", "give the original"});
  refused(with(tiny(), {{"quantization_config", {{"quant_method", "exl2"}}}}), {"already quantized", "exl2"});
  refused(with(tiny(), {{"compression_config", 7}}), {"already quantized"});
  EXPECT_NO_THROW(parse(with(tiny(), {{"quantization_config", nullptr}})));
}

// The configs of the golden models: both styles must say the same (transformers computed the same logits from both).
class GoldenConfigs : public testing::TestWithParam<const char*> {};

TEST_P(GoldenConfigs, StylesAgree) {
  const std::filesystem::path folder = std::filesystem::path(BW_FIXTURES) / "models" / GetParam();
  const ModelConfig a = parse(io::load_json(folder / "config.json"));
  const ModelConfig b = parse(io::load_json(folder / "config-v5.json"));
  expect_same_rope(a.rope, b.rope);
  expect_same_rope(a.rope_sliding, b.rope_sliding);
  EXPECT_EQ(a.sliding, b.sliding);
  EXPECT_EQ(a.sliding_window, b.sliding_window);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenConfigs,
                         testing::Values("llama", "llama-llama3", "llama-dynamic-short", "llama-dynamic-long",
                                         "llama-bias", "mistral-window-linear", "qwen2-window", "gemma3",
                                         "gemma3-softcap"));

}  // namespace
}  // namespace bw::model
