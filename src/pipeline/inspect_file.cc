// A file of tensors, whatever model it is of.
#include <algorithm>
#include <charconv>

#include "codec/exl2.h"
#include "io/file_map.h"
#include "io/safetensors.h"
#include "pipeline/inspect.h"

namespace bw::pipeline {
namespace {

// in and out of a stored tensor.
void set_shape(PartReport& part, const std::vector<uint64_t>& shape) {
  part.in = shape.empty() ? 1 : shape.back();
  part.out = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) part.out *= shape[i];
}

void set_bpw(PartReport& part) {
  const double weights = static_cast<double>(part.in) * static_cast<double>(part.out);
  part.bpw = weights > 0 ? 8.0 * static_cast<double>(part.bytes) / weights : 0;
}

PartReport begin_part(const std::string& key) {
  PartReport part;
  part.key = key;
  part.layer = layer_of_key(key);
  part.module = key.substr(key.rfind('.') + 1);
  return part;
}

// A linear in EXL2 form; columns that only fill up are counted as weights.
void set_packed(PartReport& part, const io::ShardSet& tensors) {
  part.layout = codec::stored_layout(tensors, part.key).to_string();
  part.in = tensors.require(part.key + ".q_invperm").shape().at(0);
  part.out = tensors.require(part.key + ".q_weight").shape().at(1);
}

}  // namespace

std::optional<size_t> layer_of_key(std::string_view key) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = key.find(kLayers);
  if (at == std::string_view::npos || (at > 0 && key[at - 1] != '.')) return std::nullopt;
  size_t layer = 0;
  const char* const begin = key.data() + at + kLayers.size();
  const auto [end, error] = std::from_chars(begin, key.data() + key.size(), layer);
  if (error != std::errc() || (end != key.data() + key.size() && *end != '.')) return std::nullopt;
  return layer;
}

FileReport inspect_file(const std::filesystem::path& path) {
  const io::ShardSet tensors(path);
  FileReport r;
  r.file_bytes = tensors.file_bytes();
  const io::FileMap map(path);
  r.metadata = io::parse_safetensors(map.bytes(), map.bytes().size(), path.string()).metadata;
  std::map<std::string, PartReport> parts;
  for (const io::TensorEntry* entry : tensors.entries()) {
    ++r.tensors;
    r.tensor_bytes += entry->bytes;
    const size_t dot = entry->name.rfind('.');
    const std::string key = entry->name.substr(0, dot),
                      last = dot == std::string::npos ? "" : entry->name.substr(dot + 1);
    if (last == "bias" && tensors.find_entry(key + ".weight") != nullptr) continue;
    if (last == "bias" && codec::is_stored(tensors, key)) continue;
    const bool packed = codec::is_stored(tensors, key), weight = last == "weight";
    const std::string name = packed || weight ? key : entry->name;
    PartReport& part = parts.try_emplace(name, begin_part(name)).first->second;
    part.bytes += entry->bytes;
    if (packed && part.layout.empty()) set_packed(part, tensors);
    if (!packed) {
      part.layout = io::type_name(entry->type);
      set_shape(part, entry->shape);
    }
  }
  for (auto& [name, part] : parts) {
    set_bpw(part);
    r.weights += part.in * part.out;
    r.parts.push_back(std::move(part));
  }
  std::stable_sort(r.parts.begin(), r.parts.end(), [](const PartReport& a, const PartReport& b) {
    return a.layer.value_or(SIZE_MAX) < b.layer.value_or(SIZE_MAX);
  });
  if (r.weights > 0) r.bpw = 8.0 * static_cast<double>(r.tensor_bytes) / static_cast<double>(r.weights);
  return r;
}

}  // namespace bw::pipeline
