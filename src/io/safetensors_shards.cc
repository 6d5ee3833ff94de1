#include <algorithm>
#include <cstring>

#include "bitwright/error.h"
#include "io/json.h"
#include "io/printable.h"
#include "io/safetensors.h"

namespace bw::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";

std::vector<fs::path> list_files(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> files;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) files.push_back(at->path());
  if (error) throw Error(ErrorCode::kIo, directory.string() + ": cannot list the directory: " + error.message());
  std::sort(files.begin(), files.end());  // the order of a directory is not the same on every machine
  return files;
}

[[noreturn]] void no_safetensors(const fs::path& directory, const std::vector<fs::path>& files) {
  for (const fs::path& file : files) {
    const std::string extension = file.extension().string();
    if (extension == ".bin" || extension == ".pth" || extension == ".pt") {
      throw Error(ErrorCode::kModel,
                  directory.string() + ": PyTorch weights (" + printable(file.filename().string()) +
                      "), but safetensors are needed",
                  "convert them: python -c \"import sys; from transformers import AutoModelForCausalLM as M; "
                  "M.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])\" FROM TO");
    }
    if (extension == ".gguf") {
      throw Error(ErrorCode::kModel, directory.string() + ": a GGUF file (" + printable(file.filename().string()) +
                                         "), but safetensors are needed");
    }
  }
  throw Error(ErrorCode::kModel, directory.string() + ": no *.safetensors file there", "give the directory of a model");
}

std::vector<fs::path> find_shards(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_regular_file(status) || fs::is_symlink(fs::symlink_status(path, error))) {
    if (!fs::is_directory(status)) return {path};
  }
  if (!fs::is_directory(status)) {
    throw Error(ErrorCode::kModel, path.string() + ": no such file or directory", "give the directory of a model");
  }
  const std::vector<fs::path> files = list_files(path);
  std::vector<fs::path> shards;
  for (const fs::path& file : files) {
    if (file.extension() == ".safetensors") shards.push_back(file);
  }
  if (shards.empty() && !fs::exists(path / kIndexName)) no_safetensors(path, files);
  return shards;
}

std::string numbered(size_t n, const char* noun) { return std::to_string(n) + " " + noun + (n == 1 ? "" : "s"); }

// Compares the index, where there is one, with what the headers hold. Returns a warning, or nothing.
std::string check_index(const fs::path& directory, const ShardSet& shards, const std::vector<std::string>& files) {
  const fs::path index = directory / kIndexName;
  std::error_code error;
  if (!fs::exists(index, error)) return {};
  const Json json = load_json(index);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object()) {
    throw Error(ErrorCode::kModel, index.string() + ": no object 'weight_map' in it");
  }
  std::map<std::string, size_t> absent;  // shard -> tensors that only it could hold
  size_t stale = 0;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string())
      throw Error(ErrorCode::kModel, index.string() + ": 'weight_map' holds something that is no file name");
    const auto& name = file.get_ref<const std::string&>();
    const std::string found = shards.file_of(tensor);
    if (found == name) continue;
    ++stale;
    const bool present = std::find(files.begin(), files.end(), name) != files.end();
    if (found.empty() && !present) ++absent[name];
  }
  if (!absent.empty()) {
    std::string list;
    for (const auto& [file, count] : absent) {
      list += (list.empty() ? "" : ", ") + printable(file) + " (" + numbered(count, "tensor") + ")";
    }
    throw Error(ErrorCode::kModel,
                directory.string() + ": the index names " + numbered(absent.size(), "shard") + " that " +
                    (absent.size() == 1 ? "is" : "are") + " not there: " + list,
                "download what is missing");
  }
  if (stale == 0) return {};
  return std::string(kIndexName) + " is stale: it misplaces " + numbered(stale, "tensor") +
         "; the shards' own headers are used";
}

}  // namespace

ShardSet::ShardSet(const fs::path& path, const ErrorSink& on_error) : path_(path) {
  const auto attempt = [&](const auto& step) {
    if (!on_error) return step();
    try {
      step();
    } catch (const Error& error) {
      on_error(error);
    }
  };
  std::vector<fs::path> paths;
  attempt([&] { paths = find_shards(path); });
  std::vector<std::string> files;
  for (const fs::path& file : paths) {
    files.push_back(file.filename().string());
    attempt([&] {
      Shard shard;
      shard.map = FileMap(file);
      shard.header = parse_safetensors(shard.map.bytes(), shard.map.bytes().size(), file.string());
      shard.file = files.back();
      shards_.push_back(std::move(shard));
    });
  }
  for (size_t s = 0; s < shards_.size(); ++s) {
    const std::vector<TensorEntry>& tensors = shards_[s].header.tensors;
    for (size_t t = 0; t < tensors.size(); ++t) {
      const auto [first, inserted] = places_.emplace(tensors[t].name, Place{s, t});
      if (!inserted) attempt([&, at = first->second] { check_duplicate(at, Place{s, t}); });
    }
  }
  std::error_code error;
  if (!fs::is_directory(path, error)) return;
  attempt([&] {
    std::string warning = check_index(path, *this, files);
    if (!warning.empty()) warnings_.push_back(std::move(warning));
  });
}

TensorData ShardSet::at(Place place) const {
  const Shard& shard = shards_[place.shard];
  const TensorEntry& entry = shard.header.tensors[place.tensor];
  return {&entry, shard.map.bytes().subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes))};
}

void ShardSet::check_duplicate(Place first, Place second) {
  const TensorData a = at(first), b = at(second);
  const std::string what = "tensor " + printable(a.entry->name) + " is in " + printable(shards_[first.shard].file) +
                           " and in " + printable(shards_[second.shard].file);
  const bool equal = a.type() == b.type() && a.shape() == b.shape() &&
                     (a.bytes.empty() || std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0);
  if (!equal) {
    throw Error(ErrorCode::kModel, path_.string() + ": " + what + " with different values",
                "remove the file that does not belong to the model");
  }
  warnings_.push_back(what + ", with equal values");
}

const TensorEntry* ShardSet::find_entry(std::string_view name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? nullptr : at(place->second).entry;
}

std::optional<TensorData> ShardSet::find(std::string_view name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) return std::nullopt;
  return at(place->second);
}

TensorData ShardSet::require(std::string_view name) const {
  const std::optional<TensorData> tensor = find(name);
  if (!tensor) throw Error(ErrorCode::kModel, path_.string() + ": tensor " + printable(name) + " is missing");
  return *tensor;
}

TensorData ShardSet::require(std::string_view name, std::span<const uint64_t> shape) const {
  const TensorData tensor = require(name);
  if (!std::equal(shape.begin(), shape.end(), tensor.shape().begin(), tensor.shape().end())) {
    const std::vector<uint64_t> expected(shape.begin(), shape.end());
    throw Error(ErrorCode::kModel, (path_ / file_of(name)).string() + ": tensor " + printable(name) +
                                       ": expected shape " + Json(expected).dump() + ", found " +
                                       Json(tensor.shape()).dump());
  }
  return tensor;
}

void ShardSet::prefetch(std::string_view name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) return;
  const TensorEntry& entry = *at(place->second).entry;
  shards_[place->second.shard].map.will_need(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes));
}

void ShardSet::release(std::string_view name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) return;
  const TensorEntry& entry = *at(place->second).entry;
  shards_[place->second.shard].map.dont_need(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes));
}

std::vector<const TensorEntry*> ShardSet::entries() const {
  std::vector<const TensorEntry*> all;
  all.reserve(places_.size());
  for (const auto& [name, place] : places_) all.push_back(at(place).entry);
  return all;
}

std::string ShardSet::file_of(std::string_view name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? std::string() : shards_[place->second.shard].file;
}

uint64_t ShardSet::file_bytes() const {
  uint64_t bytes = 0;
  for (const Shard& shard : shards_) bytes += shard.map.bytes().size();
  return bytes;
}

}  // namespace bw::io
