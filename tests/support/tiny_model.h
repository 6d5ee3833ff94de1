// Tiny random models, to be spoiled and written by tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "io/file_write.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace bw::test {

struct TinyTensor {
  std::string name;
  std::vector<uint64_t> shape;
  std::vector<float> values;
};

// `values` as bytes of a type (F32, F16, BF16, or an integer type).
inline std::vector<std::byte> to_bytes(io::TensorType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * io::element_size(type));
  for (size_t i = 0; i < values.size(); ++i) {
    std::byte* to = bytes.data() + i * io::element_size(type);
    const auto put = [&](auto v) { std::memcpy(to, &v, sizeof(v)); };
    switch (type) {
      case io::TensorType::kF32:
        put(values[i]);
        break;
      case io::TensorType::kF16:
        put(to_half(values[i]));
        break;
      case io::TensorType::kBF16:
        put(to_bfloat16(values[i]));
        break;
      case io::TensorType::kI32:
        put(static_cast<int32_t>(values[i]));
        break;
      case io::TensorType::kI16:
        put(static_cast<int16_t>(values[i]));
        break;
      default:
        put(static_cast<uint8_t>(values[i]));
        break;
    }
  }
  return bytes;
}

// Writes tensors[i] with types[i].
inline void save_tensors(const std::filesystem::path& file, const std::vector<TinyTensor>& tensors,
                         const std::vector<io::TensorType>& types) {
  std::vector<io::TensorPlan> plans;
  for (size_t i = 0; i < tensors.size(); ++i) plans.push_back({tensors[i].name, types[i], tensors[i].shape});
  std::vector<std::byte> bytes;
  io::write_safetensors(file, plans, [&](size_t i) {
    bytes = to_bytes(types[i], tensors[i].values);
    return std::span<const std::byte>(bytes);
  });
}

struct TinyModel {
  io::OrderedJson config;
  std::vector<TinyTensor> tensors;

  TinyTensor& at(const std::string& name) {
    const auto i = std::find_if(tensors.begin(), tensors.end(), [&](const TinyTensor& t) { return t.name == name; });
    if (i == tensors.end()) throw std::out_of_range(name);
    return *i;
  }
  void erase(const std::string& name) { tensors.erase(tensors.begin() + (&at(name) - tensors.data())); }
  // A tensor of random numbers around `centre`.
  void add(const std::string& name, std::vector<uint64_t> shape, float spread = 0.1f, float centre = 0.0f) {
    size_t n = 1;
    for (const uint64_t d : shape) n *= d;
    Rng rng(7, tensors.size());
    TinyTensor t{name, std::move(shape), std::vector<float>(n)};
    for (float& v : t.values) v = centre + spread * (2 * rng.next_float() - 1);
    tensors.push_back(std::move(t));
  }
  // Every tensor under another prefix than "model." (the head: `head_prefix`).
  void move_to(const std::string& prefix, const std::string& head_prefix) {
    for (TinyTensor& t : tensors) {
      t.name = t.name.starts_with("model.") ? prefix + t.name.substr(6) : head_prefix + t.name;
    }
  }

  static std::string shard_name(size_t i, size_t shards) {
    if (shards == 1) return "model.safetensors";
    const auto five = [](size_t n) { return std::string(5 - std::to_string(n).size(), '0') + std::to_string(n); };
    return "model-" + five(i + 1) + "-of-" + five(shards) + ".safetensors";
  }
  // config.json and the weights, in one file or in shards with an index.
  void save(const std::filesystem::path& directory, io::TensorType type = io::TensorType::kF16,
            size_t shards = 1) const {
    std::filesystem::create_directories(directory);
    io::write_file(directory / "config.json", config.dump(2));
    io::Json map = io::Json::object();
    for (size_t s = 0; s < shards; ++s) {
      const size_t begin = tensors.size() * s / shards, end = tensors.size() * (s + 1) / shards;
      const std::vector<TinyTensor> part(tensors.begin() + static_cast<std::ptrdiff_t>(begin),
                                         tensors.begin() + static_cast<std::ptrdiff_t>(end));
      save_tensors(directory / shard_name(s, shards), part, std::vector<io::TensorType>(part.size(), type));
      for (const TinyTensor& t : part) map[t.name] = shard_name(s, shards);
    }
    if (shards > 1) {
      io::write_file(directory / "model.safetensors.index.json", io::Json{{"weight_map", map}}.dump(2));
    }
  }
};

struct TinySizes {
  size_t hidden = 64, intermediate = 96, layers = 2, heads = 4, kv_heads = 2, head_dim = 16, vocab = 96;
};

// "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM" or "Gemma3ForCausalLM", tied unless `head`.
inline TinyModel make_tiny_model(const std::string& architecture = "LlamaForCausalLM", const TinySizes& s = {},
                                 bool head = false) {
  const bool gemma = architecture == "Gemma3ForCausalLM", qwen = architecture == "Qwen2ForCausalLM";
  TinyModel m;
  m.config = {{"architectures", {architecture}},
              {"model_type", gemma                                  ? "gemma3_text"
                             : qwen                                 ? "qwen2"
                             : architecture == "MistralForCausalLM" ? "mistral"
                                                                    : "llama"},
              {"hidden_size", s.hidden},
              {"intermediate_size", s.intermediate},
              {"num_hidden_layers", s.layers},
              {"num_attention_heads", s.heads},
              {"num_key_value_heads", s.kv_heads},
              {"head_dim", s.head_dim},
              {"vocab_size", s.vocab},
              {"max_position_embeddings", 256},
              {"rms_norm_eps", 1e-6},
              {"rope_theta", 10000.0},
              {"sliding_window", gemma ? io::OrderedJson(8) : io::OrderedJson()},
              {"bos_token_id", 1},
              {"eos_token_id", 2},
              {"tie_word_embeddings", !head},
              {"torch_dtype", "float16"}};
  const float one = gemma ? 0.0f : 1.0f;
  m.add("model.embed_tokens.weight", {s.vocab, s.hidden});
  for (size_t layer = 0; layer < s.layers; ++layer) {
    const std::string base = "model.layers." + std::to_string(layer) + ".";
    const size_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
    const auto linear = [&](const std::string& name, size_t out, size_t in, bool bias) {
      m.add(base + name + ".weight", {out, in});
      if (bias) m.add(base + name + ".bias", {out});
    };
    const auto norm = [&](const std::string& name, size_t n) { m.add(base + name + ".weight", {n}, 0.1f, one); };
    norm("input_layernorm", s.hidden);
    linear("self_attn.q_proj", q, s.hidden, qwen);
    linear("self_attn.k_proj", kv, s.hidden, qwen);
    linear("self_attn.v_proj", kv, s.hidden, qwen);
    linear("self_attn.o_proj", s.hidden, q, false);
    norm("post_attention_layernorm", s.hidden);
    linear("mlp.gate_proj", s.intermediate, s.hidden, false);
    linear("mlp.up_proj", s.intermediate, s.hidden, false);
    linear("mlp.down_proj", s.hidden, s.intermediate, false);
    if (!gemma) continue;
    norm("pre_feedforward_layernorm", s.hidden);
    norm("post_feedforward_layernorm", s.hidden);
    norm("self_attn.q_norm", s.head_dim);
    norm("self_attn.k_norm", s.head_dim);
  }
  m.add("model.norm.weight", {s.hidden}, 0.1f, one);
  if (head) m.add("lm_head.weight", {s.vocab, s.hidden});
  return m;
}

}  // namespace bw::test
