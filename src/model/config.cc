#include "model/config.h"

#include <algorithm>
#include <cmath>

#include "bitwright/error.h"
#include "io/printable.h"
#include "model/architectures.h"
#include "model/config_reader.h"
#include "model/rope_config.h"

namespace bw::model {
namespace {

// Bounds that no model comes near; products of two of them fit in 64 bits with room to spare.
constexpr size_t kMaxLayers = 16384;
constexpr size_t kMaxDimension = size_t{1} << 28;

std::string known_architectures() {
  std::string list;
  for (const Architecture& a : architectures()) list += (list.empty() ? "" : ", ") + std::string(a.name);
  return list;
}

[[noreturn]] void unknown(const ConfigReader& reader, const std::string& what) {
  reader.fail(what, "supported are: " + known_architectures());
}

// "architectures" must name one; with none or several, "model_type" decides.
const Architecture& choose_architecture(const ConfigReader& reader) {
  const std::optional<std::string> type = reader.text("model_type");
  const io::Json* names = reader.find("architectures");
  if (names != nullptr && !names->is_array())
    reader.fail("architectures: expected a list, found " + ConfigReader::show(*names));
  const bool one = names != nullptr && names->size() == 1 && names->front().is_string();
  if (!one) {
    if (!type) unknown(reader, "neither one entry in architectures nor a model_type says what kind of model this is");
    const Architecture* by_type = find_architecture_of_type(*type);
    if (by_type == nullptr) unknown(reader, "unknown model_type '" + io::printable(*type) + "'");
    return *by_type;
  }
  const auto& name = names->front().get_ref<const std::string&>();
  const Architecture* architecture = find_architecture(name);
  if (architecture == nullptr) unknown(reader, "unknown architecture '" + io::printable(name) + "'");
  if (type && *type != architecture->model_type) {
    reader.fail("architecture " + name + " goes with model_type '" + std::string(architecture->model_type) +
                "', found '" + io::printable(*type) + "'");
  }
  return *architecture;
}

void refuse_quantized(const ConfigReader& reader) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const io::Json* found = reader.find(key);
    if (found == nullptr) continue;
    std::string how;
    if (found->is_object()) {
      const auto method = found->find("quant_method"), bits = found->find("bits");
      if (method != found->end()) how = ConfigReader::show(*method);
      if (bits != found->end()) how += (how.empty() ? "" : ", ") + ConfigReader::show(*bits) + " bits";
    }
    reader.fail("this model is already quantized" + (how.empty() ? "" : " (" + how + ")"), "give the original");
  }
}

void read_sizes(const ConfigReader& reader, const Architecture& architecture, ModelConfig& c) {
  c.hidden = reader.require_count({"hidden_size", "n_embd", "d_model"}, kMaxDimension);
  c.intermediate = reader.require_count({"intermediate_size", "n_inner", "ffn_dim"}, kMaxDimension);
  c.n_layers = reader.require_count({"num_hidden_layers", "n_layer", "n_layers", "num_layers"}, kMaxLayers);
  c.n_heads = reader.require_count({"num_attention_heads", "n_head", "n_heads", "num_heads"}, kMaxDimension);
  c.n_kv_heads = reader.count({"num_key_value_heads", "n_kv_heads", "n_head_kv", "num_kv_heads"}, kMaxDimension)
                     .value_or(c.n_heads);
  c.vocab_size = reader.require_count({"vocab_size", "n_vocab"}, kMaxDimension);
  c.max_position = reader.count({"max_position_embeddings", "n_positions", "n_ctx"}, kMaxPositions)
                       .value_or(architecture.defaults.max_position);
  if (c.n_heads % c.n_kv_heads != 0) {
    reader.fail("num_attention_heads " + std::to_string(c.n_heads) + " is not a multiple of num_key_value_heads " +
                std::to_string(c.n_kv_heads));
  }
  const std::optional<size_t> head_dim = reader.count({"head_dim"}, kMaxDimension);
  if (!head_dim && architecture.defaults.head_dim == 0 && c.hidden % c.n_heads != 0) {
    reader.fail("hidden_size " + std::to_string(c.hidden) + " is not a multiple of num_attention_heads " +
                std::to_string(c.n_heads) + ", and there is no head_dim");
  }
  const size_t usual = architecture.defaults.head_dim != 0 ? architecture.defaults.head_dim : c.hidden / c.n_heads;
  c.head_dim = head_dim.value_or(usual);
  if (c.head_dim % 2 != 0)
    reader.fail("head_dim " + std::to_string(c.head_dim) + " is odd, so it cannot be rotated in pairs");
  if (c.head_dim > kMaxDimension / c.n_heads) reader.fail("num_attention_heads times head_dim is too large");
}

Activation read_activation(const ConfigReader& reader, Activation absent) {
  for (const char* key : {"hidden_activation", "hidden_act"}) {
    const std::optional<std::string> name = reader.text(key);
    if (!name) continue;
    if (*name == "silu" || *name == "swish") return Activation::kSilu;
    if (*name == "gelu_pytorch_tanh" || *name == "gelu_new") return Activation::kGeluTanh;
    if (*name == "gelu") return Activation::kGelu;
    reader.fail(std::string(key) + ": unknown activation '" + io::printable(*name) + "'",
                "supported are: silu, gelu_pytorch_tanh, gelu");
  }
  return absent;
}

// "layer_types", where it is given.
std::optional<std::vector<bool>> read_layer_types(const ConfigReader& reader, size_t n_layers) {
  const io::Json* types = reader.find("layer_types");
  if (types == nullptr) return std::nullopt;
  if (!types->is_array() || types->size() != n_layers) {
    reader.fail("layer_types: expected a list of " + std::to_string(n_layers) + " (num_hidden_layers), found " +
                (types->is_array() ? std::to_string(types->size()) : ConfigReader::show(*types)));
  }
  std::vector<bool> sliding;
  for (const io::Json& type : *types) {
    if (type != "full_attention" && type != "sliding_attention") {
      reader.fail("layer_types: expected full_attention or sliding_attention, found " + ConfigReader::show(type));
    }
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

void read_sliding(const ConfigReader& reader, const io::Json& json, const Architecture& architecture, ModelConfig& c) {
  c.sliding.assign(c.n_layers, false);
  if (architecture.sliding == SlidingRule::kNone) return;
  // Null means none here, while a key that is absent means the usual one.
  const std::optional<size_t> window = json.contains("sliding_window")
                                           ? reader.count({"sliding_window"}, kMaxPositions)
                                           : std::optional<size_t>(architecture.defaults.sliding_window);
  switch (architecture.sliding) {
    case SlidingRule::kNone:
      break;
    case SlidingRule::kAll:
      c.sliding.assign(c.n_layers, window.has_value());
      break;
    case SlidingRule::kUpperLayers: {
      if (!reader.flag("use_sliding_window", false)) return;
      const io::Json* from = reader.find("max_window_layers");
      const std::optional<size_t> first = from == nullptr ? size_t{28} : whole_number(*from, kMaxPositions);
      if (!first) reader.fail("max_window_layers: expected a whole number, found " + ConfigReader::show(*from));
      for (size_t i = *first; i < c.n_layers; ++i) c.sliding[i] = window.has_value();
      break;
    }
    case SlidingRule::kPattern: {
      const size_t n = reader.count({"sliding_window_pattern", "_sliding_window_pattern"}, kMaxPositions).value_or(6);
      for (size_t i = 0; i < c.n_layers; ++i) c.sliding[i] = (i + 1) % n != 0;
      break;
    }
  }
  if (architecture.sliding != SlidingRule::kAll) c.sliding = read_layer_types(reader, c.n_layers).value_or(c.sliding);
  const bool any = std::find(c.sliding.begin(), c.sliding.end(), true) != c.sliding.end();
  if (any && !window) reader.fail("layers with sliding attention, but no sliding_window");
  if (any) c.sliding_window = *window;
}

void read_biases(const ConfigReader& reader, const Architecture& architecture, ModelConfig& c) {
  c.o_bias = architecture.reads_attention_bias && reader.flag("attention_bias", false);
  c.qkv_bias = architecture.qkv_bias || c.o_bias;
  c.mlp_bias = architecture.reads_mlp_bias && reader.flag("mlp_bias", false);
}

// Of the embedding and of attention's scores.
void set_scales(const ConfigReader& reader, const Architecture& architecture, ModelConfig& c) {
  if (architecture.scales_embedding) c.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c.hidden)));
  double scalar = static_cast<double>(c.head_dim);
  if (architecture.reads_attention_scalar) {
    scalar = reader.positive("query_pre_attn_scalar").value_or(architecture.defaults.attention_scalar);
  }
  c.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
}

void read_softcaps(const ConfigReader& reader, const Architecture& architecture, ModelConfig& c) {
  if (architecture.reads_final_softcap) {
    c.final_softcap = static_cast<float>(reader.positive("final_logit_softcapping").value_or(0.0));
  }
  if (reader.positive("attn_logit_softcapping")) {
    c.notes.push_back("attn_logit_softcapping is ignored, as the reference implementation of " + c.architecture +
                      " ignores it");
  }
}

void read_special_tokens(const ConfigReader& reader, ModelConfig& c) {
  constexpr size_t kMaxId = (size_t{1} << 31) - 1;
  const io::Json* bos = reader.find("bos_token_id");
  if (bos != nullptr) {
    const std::optional<size_t> id = whole_number(*bos, kMaxId);
    if (id) c.bos = static_cast<uint32_t>(*id);
    if (!id) c.notes.push_back("bos_token_id is " + ConfigReader::show(*bos) + ", not a token id: taken as none");
  }
  const io::Json* eos = reader.find("eos_token_id");
  if (eos == nullptr) return;
  const io::Json list = eos->is_array() ? *eos : io::Json::array({*eos});
  for (const io::Json& value : list) {
    const std::optional<size_t> id = whole_number(value, kMaxId);
    if (id) c.eos.push_back(static_cast<uint32_t>(*id));
    if (!id) c.notes.push_back("eos_token_id holds " + ConfigReader::show(value) + ", not a token id: ignored");
  }
}

}  // namespace

ModelConfig parse_config(const io::Json& config, const std::string& name) {
  return parse_config(config, name, Findings());
}

ModelConfig parse_config(const io::Json& config, const std::string& name, const Findings& findings) {
  std::optional<ConfigReader> object;
  ModelConfig c;
  if (!findings.attempt([&] { object.emplace(config, name); })) return c;
  const ConfigReader& reader = *object;
  findings.attempt([&] { refuse_quantized(reader); });
  const Architecture* known = nullptr;
  if (!findings.attempt([&] { known = &choose_architecture(reader); })) return c;
  const Architecture& architecture = *known;
  c.architecture = architecture.name;
  c.model_type = architecture.model_type;
  c.norm_offset = architecture.norm_offset;
  c.qk_norm = architecture.qk_norm;
  c.post_norms = architecture.post_norms;
  const bool sized = findings.attempt([&] { read_sizes(reader, architecture, c); });
  findings.attempt([&] { c.norm_eps = static_cast<float>(reader.positive("rms_norm_eps").value_or(1e-6)); });
  findings.attempt([&] { read_biases(reader, architecture, c); });
  findings.attempt([&] { c.activation = read_activation(reader, architecture.defaults.activation); });
  if (sized) findings.attempt([&] { set_scales(reader, architecture, c); });
  findings.attempt([&] {
    if (!reader.flag("use_bidirectional_attention", false)) return;
    reader.fail("use_bidirectional_attention is true: only causal decoders are supported");
  });
  findings.attempt([&] { read_softcaps(reader, architecture, c); });
  if (sized) findings.attempt([&] { read_sliding(reader, config, architecture, c); });
  if (sized) findings.attempt([&] { read_rope(reader, name, architecture, c); });
  findings.attempt([&] { c.tied = reader.flag("tie_word_embeddings", architecture.defaults.tied); });
  findings.attempt([&] { read_special_tokens(reader, c); });
  return c;
}

std::vector<std::string> supported_architectures() {
  std::vector<std::string> names;
  for (const Architecture& a : architectures()) names.emplace_back(a.name);
  return names;
}

}  // namespace bw::model
