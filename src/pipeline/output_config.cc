#include "pipeline/output_config.h"

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>

#include "base/ascii.h"
#include "bitwright/bitwright.h"
#include "bitwright/error.h"
#include "pipeline/output_place.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTool = "bitwright";

bool is_document(const std::string& name) {
  const std::string lower = ascii_lower(name);
  for (const char* ours : {kModelCard, kReportPage, kReportData}) {
    if (lower == ascii_lower(ours)) return true;
  }
  return false;
}

// `value` under `key`, unless an equal number stands there already (as it was spelt).
void set_number(io::OrderedJson& config, const char* key, double value) {
  if (config.contains(key) && config[key].is_number() && config[key].get<double>() == value) return;
  config[key] = value;
}

// rope_scaling as the loader reads it: it goes by `type` for linear scaling and by `rope_type` for llama3 (and refuses
// both at once), and wants every number spelt out.
io::OrderedJson scaling_object(const model::RopeConfig& rope) {
  switch (rope.scaling) {
    case model::RopeScaling::kLinear:
      return {{"type", "linear"}, {"factor", rope.factor}};
    case model::RopeScaling::kDynamic:
      return {{"type", "dynamic"},
              {"factor", rope.factor},
              {"original_max_position_embeddings", rope.original_max_position}};
    case model::RopeScaling::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", rope.factor},
              {"low_freq_factor", rope.low_freq_factor},
              {"high_freq_factor", rope.high_freq_factor},
              {"original_max_position_embeddings", rope.original_max_position}};
    case model::RopeScaling::kNone:
      break;
  }
  return nullptr;
}

// Distance between full-attention layers, if they stand at even distances ("every sixth layer"); else 0.
size_t sliding_pattern(const model::ModelConfig& config) {
  const auto first = std::find(config.sliding.begin(), config.sliding.end(), false);
  if (first == config.sliding.end()) return 0;
  const auto period = static_cast<size_t>(first - config.sliding.begin()) + 1;
  for (size_t layer = 0; layer < config.sliding.size(); ++layer) {
    if (config.sliding[layer] != ((layer + 1) % period != 0)) return 0;
  }
  return period;
}

// The rope and window keys at the top level, where the loader reads them, from what the engine itself went by.
void set_rope_keys(io::OrderedJson& config, const model::ModelConfig& typed) {
  set_number(config, "rope_theta", typed.rope.theta);
  if (config.contains("rope_local_base_freq") || typed.rope_sliding.theta != typed.rope.theta) {
    set_number(config, "rope_local_base_freq", typed.rope_sliding.theta);
  }
  if (typed.rope.scaling != model::RopeScaling::kNone || config.contains("rope_scaling")) {
    config["rope_scaling"] = scaling_object(typed.rope);
  }
  // Layers' windows: the loader reads this key alone, not layer_types.
  if (typed.rope_sliding.theta != typed.rope.theta && sliding_pattern(typed) > 1) {
    config["sliding_window_pattern"] = sliding_pattern(typed);
  }
}

// True if config.json of a directory says that Bitwright wrote it.
bool written_by_us(const std::filesystem::path& dir) {
  try {
    const io::Json config = io::load_json(dir / "config.json");
    return config.is_object() && config.contains("quantization_config") && config["quantization_config"].is_object() &&
           config["quantization_config"].value("tool", std::string()) == kTool;
  } catch (const std::exception&) {
    return false;
  }
}

bool is_side_file(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (name.empty() || name[0] == '.' || name == "config.json" || name.ends_with(".index.json")) return false;
  const std::string extension = path.extension().string();
  for (const char* known : {".json", ".jinja", ".model", ".txt", ".py", ".md"}) {
    if (extension == known) return true;
  }
  std::string upper;
  for (const char c : name) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper.starts_with("LICENSE") || upper.starts_with("LICENCE") || upper.starts_with("NOTICE") ||
         upper.starts_with("COPYING");
}

}  // namespace

std::string output_config(const model::ModelDir& dir, const Measurement& m, double bits, int head_bits) {
  io::OrderedJson config = dir.raw_config();
  config["architectures"] = {dir.config().architecture};
  set_rope_keys(config, dir.config());
  config["tie_word_embeddings"] = head_bits == 16 && dir.head_is_embedding();
  config["quantization_config"] = {
      {"quant_method", "exl2"},
      {"version", std::string(version())},
      {"bits", bits},
      {"head_bits", head_bits},
      {"calibration", {{"rows", m.rows}, {"length", m.length}, {"dataset", m.source}}},
      {"tool", kTool},
  };
  return config.dump(2, ' ', false, io::OrderedJson::error_handler_t::replace) + "\n";
}

std::optional<std::string> foreign_file(const std::filesystem::path& dir) {
  if (!written_by_us(dir)) return "config.json";
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == "config.json" || name == kPartialMarker || name == kReportPage ||
                      name.ends_with(".safetensors") || is_side_file(entry.path());
    if (!entry.is_regular_file() || !ours) return name;
  }
  return std::nullopt;
}

std::vector<std::filesystem::path> side_files(const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (!is_side_file(entry.path())) continue;
    if (entry.is_symlink() && !entry.exists()) {
      throw Error(ErrorCode::kModel, fmt::format("{}: a link whose target is missing", entry.path().string()),
                  "download the model again");
    }
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> side_file_names(const std::vector<fs::path>& files) {
  std::set<std::string> taken;
  for (const fs::path& file : files) taken.insert(file.filename().string());
  std::vector<std::string> names;
  for (const fs::path& file : files) {
    fs::path name = file.filename();
    if (is_document(name.string())) {
      while (taken.contains(name.string())) name = name.stem().string() + ".original" + name.extension().string();
      taken.insert(name.string());
    }
    names.push_back(name.string());
  }
  return names;
}

}  // namespace bw::pipeline
