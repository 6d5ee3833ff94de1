#include "model/model_dir.h"

#include "base/check.h"
#include "bitwright/error.h"
#include "io/file_write.h"
#include "io/json.h"
#include "model/tensor_names.h"

namespace bw::model {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxConfigBytes = uint64_t{64} << 20;

// Before anything of it is read: what is wrong with the path is said best by itself.
const fs::path& checked(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const char* what = fs::exists(path, error) ? ": it is a file, not a directory" : ": no such directory";
    throw Error(ErrorCode::kModel, path.string() + what, "give the directory of a model");
  }
  if (!fs::exists(fs::symlink_status(path / "config.json", error))) {
    throw Error(ErrorCode::kModel, path.string() + ": no config.json there", "give the directory of a model");
  }
  return path;
}

}  // namespace

std::string_view linear_name(LinearKind kind) {
  switch (kind) {
    case LinearKind::kQ:
      return "q_proj";
    case LinearKind::kK:
      return "k_proj";
    case LinearKind::kV:
      return "v_proj";
    case LinearKind::kO:
      return "o_proj";
    case LinearKind::kGate:
      return "gate_proj";
    case LinearKind::kUp:
      return "up_proj";
    case LinearKind::kDown:
      return "down_proj";
  }
  BW_CHECK(false);
}

ModelDir::ModelDir(const fs::path& path, bool allow_quantized) : ModelDir(path, allow_quantized, Findings()) {}

ModelDir::ModelDir(const fs::path& path, bool allow_quantized, const Findings& findings)
    : path_(checked(path)), tensors_(path, findings.sink()) {
  findings.attempt([&] { read_config(allow_quantized, findings); });
  warnings_ = tensors_.warnings();
  warnings_.insert(warnings_.end(), config_.notes.begin(), config_.notes.end());
  check_tensors(allow_quantized, findings);
}

void ModelDir::read_config(bool allow_quantized, const Findings& findings) {
  const fs::path file = path_ / "config.json";
  const std::string text = io::read_file(file, kMaxConfigBytes);
  raw_config_ = io::parse_ordered_json(text, file.string());
  io::Json config = io::parse_json(text, file.string());
  if (allow_quantized && config.is_object() && config.contains("quantization_config")) {
    const io::Json& how = config["quantization_config"];
    if (how.is_object() && how.value("quant_method", io::Json()) == "exl2") config.erase("quantization_config");
  }
  config_ = parse_config(config, file.string(), findings);
}

CheckedModel check_model(const fs::path& path) {
  CheckedModel result;
  const Findings findings(result.findings, path);
  findings.attempt([&] {
    ModelDir dir(path, false, findings);
    dir.check_values(findings);
    const bool sound = !findings.any();
    for (const std::string& warning : dir.warnings()) {
      Finding finding;
      finding.what = warning;
      result.findings.push_back(std::move(finding));
    }
    if (sound) result.dir.emplace(std::move(dir));
  });
  return result;
}

LinearInfo ModelDir::linear(size_t layer, LinearKind kind) const {
  BW_CHECK(layer < config_.n_layers);
  const size_t q = config_.n_heads * config_.head_dim, kv = config_.n_kv_heads * config_.head_dim;
  const size_t hidden = config_.hidden, intermediate = config_.intermediate;
  LinearInfo info;
  info.kind = kind;
  const bool attention = kind <= LinearKind::kO;
  info.key = prefix_ + "layers." + std::to_string(layer) + (attention ? ".self_attn." : ".mlp.") +
             std::string(linear_name(kind));
  info.in = kind == LinearKind::kO ? q : kind == LinearKind::kDown ? intermediate : hidden;
  switch (kind) {
    case LinearKind::kQ:
      info.out = q;
      break;
    case LinearKind::kK:
    case LinearKind::kV:
      info.out = kv;
      break;
    case LinearKind::kO:
    case LinearKind::kDown:
      info.out = hidden;
      break;
    case LinearKind::kGate:
    case LinearKind::kUp:
      info.out = intermediate;
      break;
  }
  info.has_bias = !attention ? config_.mlp_bias : kind == LinearKind::kO ? config_.o_bias : config_.qkv_bias;
  return info;
}

LinearInfo ModelDir::head() const {
  LinearInfo info;
  info.kind = LinearKind::kQ;
  info.key = stored_name("lm_head");
  info.in = config_.hidden;
  info.out = vocab_rows_;
  return info;
}

std::string ModelDir::stored_name(std::string_view name) const {
  constexpr std::string_view kModel = "model.";
  if (name.starts_with(kModel)) return prefix_ + std::string(name.substr(kModel.size()));
  return head_prefix_ + std::string(name);
}

std::string ModelDir::reference_name(std::string_view stored) const {
  const std::string head = head_prefix_ + "lm_head";
  if (stored.starts_with(head)) return std::string(stored.substr(head_prefix_.size()));
  BW_CHECK(stored.starts_with(prefix_));
  return "model." + std::string(stored.substr(prefix_.size()));
}

size_t ModelDir::parameters() const {
  size_t n = vocab_rows_ * config_.hidden * (head_is_embedding_ ? 1 : 2) + config_.hidden;
  for (size_t layer = 0; layer < config_.n_layers; ++layer) {
    for (size_t k = 0; k < kLinearsPerLayer; ++k) {
      const LinearInfo info = linear(layer, static_cast<LinearKind>(k));
      n += info.in * info.out + (info.has_bias ? info.out : 0);
    }
    n += config_.hidden * (config_.post_norms ? 4 : 2) + (config_.qk_norm ? 2 * config_.head_dim : 0);
  }
  return n;
}

std::vector<std::string> ModelDir::layer_tensors(size_t layer) const {
  std::vector<std::string> names;
  for (size_t k = 0; k < kLinearsPerLayer; ++k) {
    const std::string key = linear(layer, static_cast<LinearKind>(k)).key;
    names.push_back(key + ".weight");
    names.push_back(key + ".bias");
    for (const std::string_view suffix : kPackedSuffixes) names.push_back(key + std::string(suffix));
  }
  for (NormInfo& norm : layer_norms(layer)) names.push_back(std::move(norm.name));
  return names;
}

std::vector<ModelDir::NormInfo> ModelDir::layer_norms(size_t layer) const {
  const std::string base = prefix_ + "layers." + std::to_string(layer) + ".";
  std::vector<NormInfo> norms;
  const auto add = [&](std::string_view name, size_t size) {
    norms.push_back({base + std::string(name) + ".weight", size});
  };
  add(kInputNorm, config_.hidden);
  add(kPostAttentionNorm, config_.hidden);
  if (config_.post_norms) {
    add(kPreMlpNorm, config_.hidden);
    add(kPostMlpNorm, config_.hidden);
  }
  if (config_.qk_norm) {
    add(kQNorm, config_.head_dim);
    add(kKNorm, config_.head_dim);
  }
  return norms;
}

void ModelDir::prefetch_layer(size_t layer) const {
  for (const std::string& name : layer_tensors(layer)) tensors_.prefetch(name);
}

void ModelDir::release_layer(size_t layer) const {
  for (const std::string& name : layer_tensors(layer)) tensors_.release(name);
}

}  // namespace bw::model
