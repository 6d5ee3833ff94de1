#include "pipeline/inspect.h"

#include <fmt/format.h>

#include "bitwright/error.h"
#include "codec/exl2.h"
#include "io/work_dir.h"
#include "pipeline/stored_bits.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;

std::string layout_of(const model::ModelDir& dir, const model::LinearInfo& info) {
  if (codec::is_stored(dir.tensors(), info.key)) {
    return codec::stored_layout(dir.tensors(), info.key).to_string();
  }
  const io::TensorEntry* entry = dir.tensors().find_entry(info.key + ".weight");
  if (entry == nullptr) entry = dir.tensors().find_entry(dir.stored_name("model.embed_tokens.weight"));
  return entry == nullptr ? std::string("?") : std::string(io::type_name(entry->type));
}

PartReport report_of(const model::ModelDir& dir, const model::LinearInfo& info, std::optional<size_t> layer) {
  const uint64_t bits = stored_weight_bits(dir, info);
  return {info.key,
          layer,
          layer ? std::string(model::linear_name(info.kind)) : "lm_head",
          info.in,
          info.out,
          layout_of(dir, info),
          bits / 8,
          static_cast<double>(bits) / (static_cast<double>(info.in) * static_cast<double>(info.out))};
}

PartReport embedding_of(const model::ModelDir& dir) {
  const std::string name = dir.stored_name("model.embed_tokens.weight");
  const io::TensorEntry* entry = dir.tensors().find_entry(name);
  if (entry == nullptr) return {};
  return {name.substr(0, name.rfind('.')),
          std::nullopt,
          "embed_tokens",
          dir.config().hidden,
          dir.vocab_rows(),
          std::string(io::type_name(entry->type)),
          entry->bytes,
          8.0 * static_cast<double>(entry->bytes) / static_cast<double>(entry->elements())};
}

// Bits by weights of all these.
double mean_bpw(const std::vector<PartReport>& parts) {
  double bits = 0, weights = 0;
  for (const PartReport& p : parts) {
    bits += 8.0 * static_cast<double>(p.bytes);
    weights += static_cast<double>(p.in) * static_cast<double>(p.out);
  }
  return bits / weights;
}

bool looks_like_json(const fs::path& path) {
  return path.extension() == ".json" && path.filename() != "model.safetensors.index.json";
}

}  // namespace

InspectResult inspect_model(const fs::path& path) {
  const model::ModelDir dir(path, true);
  InspectResult r;
  r.architecture = dir.config().architecture;
  r.layers = dir.config().n_layers;
  r.hidden = dir.config().hidden;
  r.vocabulary = dir.vocab_rows();
  r.parameters = dir.parameters();
  r.tensor_bytes = dir.tensors().file_bytes();
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) r.directory_bytes += entry.file_size();
  }
  r.quantized = dir.quantized();
  r.tied = dir.head_is_embedding();
  r.bpw_linears = bpw_of_linears(dir);
  r.bpw_head = bpw_of_head(dir);
  r.bpw_all = 8.0 * static_cast<double>(r.tensor_bytes) / static_cast<double>(r.parameters);
  r.warnings = dir.warnings();
  for (size_t layer = 0; layer < r.layers; ++layer) {
    for (size_t k = 0; k < model::kLinearsPerLayer; ++k) {
      r.linears.push_back(report_of(dir, dir.linear(layer, static_cast<model::LinearKind>(k)), layer));
    }
  }
  r.linears.push_back(report_of(dir, dir.head(), std::nullopt));
  r.bpw_linears_and_head = mean_bpw(r.linears);
  r.embedding = embedding_of(dir);
  return r;
}

InspectReport inspect_any(const fs::path& path) {
  if (!fs::exists(path))
    throw Error(ErrorCode::kIo, fmt::format("{}: there is no such file or directory", path.string()));
  if (fs::is_directory(path)) {
    if (io::is_work_dir(path)) return inspect_job(path);
    return inspect_model(path);
  }
  if (path.extension() == ".safetensors") return inspect_file(path);
  if (looks_like_json(path)) return inspect_measurement(path);
  throw Error(ErrorCode::kModel, fmt::format("{}: neither a directory nor a .safetensors or .json file", path.string()),
              "give a model directory, a .safetensors file, a measurement or a work folder");
}

}  // namespace bw::pipeline
