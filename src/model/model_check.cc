#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <set>
#include <utility>

#include "bitwright/error.h"
#include "io/printable.h"
#include "model/finite.h"
#include "model/model_dir.h"
#include "model/tensor_names.h"

namespace bw::model {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what, const std::string& hint = {}) {
  throw Error(ErrorCode::kModel, path.string() + ": " + what, hint);
}

bool is_float(io::TensorType type) {
  return type == io::TensorType::kF32 || type == io::TensorType::kF16 || type == io::TensorType::kBF16 ||
         type == io::TensorType::kF64;
}

bool ends_with_any(std::string_view name, std::span<const std::string_view> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [&](std::string_view s) { return name.ends_with(s); });
}

// Side tensors by which other quantizers can be told.
constexpr std::array<std::string_view, 9> kForeignSuffixes = {".qweight",      ".qzeros",           ".weight_packed",
                                                              ".weight_scale", ".weight_scale_inv", ".weight_shape",
                                                              ".absmax",       ".trellis",          ".quant_map"};
// Constants that some exporters store and nobody reads.
constexpr std::array<std::string_view, 3> kHarmlessSuffixes = {"rotary_emb.inv_freq", ".attn.masked_bias",
                                                               ".position_ids"};
// Parts of models that do more than text.
constexpr std::array<std::string_view, 8> kTowers = {
    "vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.",
    "vision_model.", "audio_tower.",           "model.audio_tower.",  "visual."};

struct Prefix {
  std::string_view body, head;
};
constexpr std::array<Prefix, 4> kPrefixes = {Prefix{"model.", ""}, Prefix{"", ""},
                                             Prefix{"language_model.model.", "language_model."},
                                             Prefix{"model.language_model.", ""}};

// The layer number in "PREFIXlayers.N....", if it is one.
std::optional<size_t> layer_of(std::string_view name, std::string_view prefix) {
  const std::string start = std::string(prefix) + "layers.";
  if (!name.starts_with(start)) return std::nullopt;
  name.remove_prefix(start.size());
  size_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  return layer;
}

}  // namespace

void ModelDir::check_tensors(bool allow_quantized, const Findings& findings) {
  findings.attempt([&] { check_not_quantized(allow_quantized); });
  // Without a config or with shards that lack tensors, all that follows would only repeat it.
  if (findings.any() || !findings.attempt([&] { find_prefix(); })) return;
  if (!findings.attempt([&] { check_layer_count(); })) return;
  const bool embeds = findings.attempt([&] { check_vocabulary(); });
  for (size_t layer = 0; layer < config_.n_layers; ++layer) {
    for (size_t k = 0; k < kLinearsPerLayer; ++k) {
      findings.attempt([&] { check_linear(linear(layer, static_cast<LinearKind>(k))); });
    }
    // Small; a wrong shape, type or name shows itself.
    for (const NormInfo& norm : layer_norms(layer)) findings.attempt([&] { load_norm(norm.name, norm.size); });
  }
  findings.attempt([&] { load_final_norm(); });
  if (embeds) findings.attempt([&] { check_head(); });
  check_extra();
}

void ModelDir::check_values(const Findings& findings) const {
  for (const io::TensorEntry* entry : tensors_.entries()) {
    const bool known = used_.empty() ? !ends_with_any(entry->name, kHarmlessSuffixes) : uses(entry->name);
    if (!known || !is_float(entry->type)) continue;
    findings.attempt([&] { check_finite_sample(tensors_.require(entry->name)); });
    tensors_.release(entry->name);
  }
}

void ModelDir::check_not_quantized(bool allow_quantized) {
  for (const io::TensorEntry* entry : tensors_.entries()) {
    const std::string& name = entry->name;
    if (name.ends_with(".q_weight")) quantized_ = true;
    const bool fp8 = entry->type == io::TensorType::kF8E4M3 || entry->type == io::TensorType::kF8E5M2;
    if (fp8 || ends_with_any(name, kForeignSuffixes)) {
      fail(path_,
           "this model is already quantized (tensor " + io::printable(name) + ", " +
               std::string(io::type_name(entry->type)) + ")",
           "give the original");
    }
  }
  if (quantized_ && !allow_quantized) fail(path_, "this model is already quantized (exl2)", "give the original");
}

void ModelDir::find_prefix() {
  for (const io::TensorEntry* entry : tensors_.entries()) {
    for (const std::string_view tower : kTowers) {
      if (!entry->name.starts_with(tower)) continue;
      fail(path_, "a model of text and more: tensor " + io::printable(entry->name) + " belongs to '" +
                      std::string(tower.substr(0, tower.size() - 1)) + "', and only text decoders are supported");
    }
  }
  for (const Prefix& p : kPrefixes) {
    if (tensors_.find_entry(std::string(p.body) + "embed_tokens.weight") == nullptr) continue;
    prefix_ = p.body;
    head_prefix_ = p.head;
    return;
  }
  std::set<std::string> files;
  for (const io::TensorEntry* entry : tensors_.entries()) files.insert(tensors_.file_of(entry->name));
  std::string read;
  for (const std::string& file : files) read += (read.empty() ? "" : ", ") + io::printable(file);
  fail(path_,
       "tensor model.embed_tokens.weight is missing, also under the prefixes language_model.model., "
       "model.language_model. and none; tensors were read from " +
           read + " alone");
}

void ModelDir::check_layer_count() const {
  std::set<size_t> layers;
  for (const io::TensorEntry* entry : tensors_.entries()) {
    const std::optional<size_t> layer = layer_of(entry->name, prefix_);
    if (layer) layers.insert(*layer);
  }
  const size_t stored = layers.empty() ? 0 : *layers.rbegin() + 1;
  if (stored != config_.n_layers) {
    fail(path_, "config.json says num_hidden_layers " + std::to_string(config_.n_layers) +
                    ", but the weights hold layers up to " +
                    (stored == 0 ? std::string("none") : std::to_string(stored - 1)));
  }
  for (size_t layer = 0; layer < stored; ++layer) {
    if (!layers.contains(layer)) fail(path_, "no tensor of layer " + std::to_string(layer) + " is there");
  }
}

void ModelDir::check_vocabulary() {
  const std::string name = stored_name("model.embed_tokens.weight");
  const io::TensorData embedding = tensors_.require(name);
  const std::vector<uint64_t>& shape = embedding.shape();
  if (shape.size() != 2 || shape[0] == 0 || shape[1] != config_.hidden) {
    const std::array<uint64_t, 2> expected = {config_.vocab_size, config_.hidden};
    tensors_.require(name, expected);
  }
  if (!is_float(embedding.type())) {
    fail(path_,
         "tensor " + name + ": expected F16, BF16 or F32, found " + std::string(io::type_name(embedding.type())));
  }
  vocab_rows_ = static_cast<size_t>(shape[0]);
  if (vocab_rows_ > UINT32_MAX) fail(path_, "tensor " + name + " has " + std::to_string(vocab_rows_) + " rows");
  if (vocab_rows_ != config_.vocab_size) {
    warnings_.push_back("config.json says vocab_size " + std::to_string(config_.vocab_size) +
                        ", but the embedding has " + std::to_string(vocab_rows_) + " rows: the rows count");
  }
  if (config_.bos && *config_.bos >= vocab_rows_) {
    warnings_.push_back("bos_token_id " + std::to_string(*config_.bos) + " is beyond the embedding's " +
                        std::to_string(vocab_rows_) + " rows: taken as none");
    config_.bos.reset();
  }
  std::erase_if(config_.eos, [&](uint32_t id) {
    if (id >= vocab_rows_)
      warnings_.push_back("eos_token_id " + std::to_string(id) + " is beyond the embedding's rows: ignored");
    return id >= vocab_rows_;
  });
}

void ModelDir::check_linear(const LinearInfo& info) const {
  if (quantized_ && tensors_.find_entry(info.key + ".q_weight") != nullptr) {
    check_packed(info);
  } else {
    const std::array<uint64_t, 2> shape = {info.out, info.in};
    const io::TensorData weight = tensors_.require(info.key + ".weight", shape);
    if (!is_float(weight.type())) {
      fail(path_, "tensor " + info.key + ".weight: expected F16, BF16 or F32, found " +
                      std::string(io::type_name(weight.type())));
    }
  }
  load_bias(info);
  const std::optional<io::TensorData> bias = tensors_.find(info.key + ".bias");
  if (info.has_bias || !bias) return;
  // Exporters like to add zeros; anything else would be lost without a word.
  std::vector<float> values(bias->entry->elements());
  io::read_floats(*bias, values);
  if (std::any_of(values.begin(), values.end(), [](float x) { return x != 0; })) {
    fail(path_, "tensor " + info.key + ".bias is stored, but by its config.json " + config_.architecture +
                    " has no bias there");
  }
}

void ModelDir::check_packed(const LinearInfo& info) const {
  const auto require = [&](const char* suffix, io::TensorType type) {
    const io::TensorData tensor = tensors_.require(info.key + suffix);
    if (tensor.type() != type) {
      fail(path_, "tensor " + info.key + suffix + ": expected " + std::string(io::type_name(type)) + ", found " +
                      std::string(io::type_name(tensor.type())));
    }
    return tensor;
  };
  const uint64_t columns = (info.out + 31) / 32 * 32;
  const std::vector<uint64_t> scale_max = require(".q_scale_max", io::TensorType::kF16).shape();
  const uint64_t groups = scale_max.empty() ? 0 : scale_max[0];
  const std::vector<uint64_t> weight = require(".q_weight", io::TensorType::kI32).shape();
  require(".q_scale", io::TensorType::kI32);
  require(".q_groups", io::TensorType::kI16);
  require(".q_invperm", io::TensorType::kI32);
  const auto shape = [&](const char* suffix, std::initializer_list<uint64_t> expected) {
    tensors_.require(info.key + suffix, std::span<const uint64_t>(expected.begin(), expected.size()));
  };
  shape(".q_weight", {weight.empty() ? 0 : weight[0], columns});
  shape(".q_scale", {groups, columns / 8});
  shape(".q_scale_max", {groups});
  shape(".q_groups", {groups * 2});
  shape(".q_invperm", {info.in});
  if (groups == 0 || weight[0] == 0) fail(path_, "linear " + info.key + " has no groups or no rows");
}

void ModelDir::check_head() {
  const LinearInfo info = head();
  const std::string embedding = stored_name("model.embed_tokens.weight");
  if (quantized_ && tensors_.find_entry(info.key + ".q_weight") != nullptr) {
    check_packed(info);
    return;
  }
  const std::optional<io::TensorData> stored = tensors_.find(info.key + ".weight");
  if (!stored) {
    head_is_embedding_ = true;
    if (!config_.tied) {
      warnings_.push_back("no " + info.key +
                          ".weight is stored though config.json does not tie it: the embedding is the head");
    }
    return;
  }
  const io::TensorData rows = tensors_.require(embedding);
  check_linear(info);
  head_is_embedding_ =
      stored->type() == rows.type() && std::memcmp(stored->bytes.data(), rows.bytes.data(), rows.bytes.size()) == 0;
  if (config_.tied && !head_is_embedding_) {
    warnings_.push_back("config.json ties the head to the embedding, but a different " + info.key +
                        ".weight is stored: the stored one is used");
  }
}

void ModelDir::check_extra() {
  used_ = {stored_name("model.embed_tokens.weight"), stored_name("model.norm.weight")};
  for (size_t layer = 0; layer < config_.n_layers; ++layer) {
    for (std::string& name : layer_tensors(layer)) used_.insert(std::move(name));
  }
  const std::string head_key = head().key;
  used_.insert(head_key + ".weight");
  used_.insert(head_key + ".bias");
  for (const std::string_view suffix : kPackedSuffixes) used_.insert(head_key + std::string(suffix));

  constexpr size_t kListed = 4;
  size_t extra = 0;
  std::string list;
  for (const io::TensorEntry* entry : tensors_.entries()) {
    if (uses(entry->name) || ends_with_any(entry->name, kHarmlessSuffixes)) continue;
    if (extra++ < kListed) list += (list.empty() ? "" : ", ") + io::printable(entry->name);
  }
  if (extra == 0) return;
  warnings_.push_back(std::to_string(extra) + (extra == 1 ? " tensor is" : " tensors are") +
                      " not used and will be dropped: " + list + (extra > kListed ? ", ..." : ""));
}

}  // namespace bw::model
