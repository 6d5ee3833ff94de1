#include "pipeline/inspect.h"

#include "codec/exl2.h"
#include "pipeline/stored_bits.h"

namespace bw::pipeline {
namespace {

std::string layout_of(const model::ModelDir& dir, const model::LinearInfo& info) {
  if (codec::is_stored(dir.tensors(), info.key)) {
    return codec::stored_layout(dir.tensors(), info.key).to_string();
  }
  const io::TensorEntry* entry = dir.tensors().find_entry(info.key + ".weight");
  if (entry == nullptr) entry = dir.tensors().find_entry(dir.stored_name("model.embed_tokens.weight"));
  return entry == nullptr ? std::string("?") : std::string(io::type_name(entry->type));
}

LinearReport report_of(const model::ModelDir& dir, const model::LinearInfo& info) {
  return {info.key, info.in, info.out, layout_of(dir, info),
          static_cast<double>(stored_weight_bits(dir, info)) /
              (static_cast<double>(info.in) * static_cast<double>(info.out))};
}

}  // namespace

InspectResult inspect_model(const std::filesystem::path& path) {
  const model::ModelDir dir(path, true);
  InspectResult r;
  r.architecture = dir.config().architecture;
  r.layers = dir.config().n_layers;
  r.hidden = dir.config().hidden;
  r.vocabulary = dir.vocab_rows();
  r.parameters = dir.parameters();
  r.tensor_bytes = dir.tensors().file_bytes();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
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
      r.linears.push_back(report_of(dir, dir.linear(layer, static_cast<model::LinearKind>(k))));
    }
  }
  r.linears.push_back(report_of(dir, dir.head()));
  return r;
}

}  // namespace bw::pipeline
