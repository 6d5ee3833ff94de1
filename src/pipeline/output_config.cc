#include "pipeline/output_config.h"

#include <algorithm>
#include <cctype>

#include "bitwright/bitwright.h"
#include "bitwright/error.h"

namespace bw::pipeline {
namespace {

constexpr const char* kTool = "bitwright";

// rope_theta, rope_scaling and rope_local_base_freq as the loader reads them, from Transformers 5's rope_parameters
// (one object, or one for each type of layer).
void raise_rope_keys(io::OrderedJson& config) {
  if (!config.contains("rope_parameters") || !config["rope_parameters"].is_object()) return;
  const io::OrderedJson parameters = config["rope_parameters"];
  const bool nested = parameters.contains("full_attention") && parameters["full_attention"].is_object();
  const io::OrderedJson& rope = nested ? parameters["full_attention"] : parameters;
  if (!config.contains("rope_theta") && rope.contains("rope_theta")) config["rope_theta"] = rope["rope_theta"];
  if (nested && !config.contains("rope_local_base_freq") && parameters.contains("sliding_attention") &&
      parameters["sliding_attention"].is_object() && parameters["sliding_attention"].contains("rope_theta")) {
    config["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"];
  }
  if (config.contains("rope_scaling") && !config["rope_scaling"].is_null()) return;
  io::OrderedJson scaling = rope;
  scaling.erase("rope_theta");
  const std::string type = scaling.value("rope_type", scaling.value("type", std::string("default")));
  if (type != "default") config["rope_scaling"] = scaling;
}

// The loader refuses a rope_scaling that has both `type` and `rope_type`.
void keep_one_rope_type(io::OrderedJson& config) {
  if (!config.contains("rope_scaling") || !config["rope_scaling"].is_object()) return;
  io::OrderedJson& scaling = config["rope_scaling"];
  if (scaling.contains("type") && scaling.contains("rope_type")) scaling.erase("type");
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
  raise_rope_keys(config);
  keep_one_rope_type(config);
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

bool written_by_us(const std::filesystem::path& dir) {
  try {
    const io::Json config = io::load_json(dir / "config.json");
    return config.is_object() && config.contains("quantization_config") && config["quantization_config"].is_object() &&
           config["quantization_config"].value("tool", std::string()) == kTool;
  } catch (const std::exception&) {
    return false;
  }
}

std::vector<std::filesystem::path> side_files(const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.is_regular_file() && is_side_file(entry.path())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace bw::pipeline
