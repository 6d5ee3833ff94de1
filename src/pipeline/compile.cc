#include "pipeline/compile.h"

#include <cmath>
#include <set>
#include <system_error>

#include <fmt/format.h>

#include "base/half.h"
#include "bitwright/error.h"
#include "bitwright/units.h"
#include "io/file_write.h"
#include "pipeline/output_config.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = ".bitwright-partial";
constexpr const char* kLayers = ".layers";

fs::path partial_path(const fs::path& output) {
  fs::path clean = output.lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();
  clean += ".partial";
  return clean;
}

// Runs a file system call; its failure is an Error that names the path.
template <typename Call>
void file_system(const fs::path& path, const char* what, const Call& call) {
  std::error_code error;
  call(error);
  if (error) throw Error(ErrorCode::kIo, fmt::format("{}: cannot {}: {}", path.string(), what, error.message()));
}

std::vector<float> floats_of(const io::TensorData& tensor) {
  std::vector<float> values(tensor.entry->elements());
  io::read_floats(tensor, values);
  return values;
}

std::vector<Half> halves_of(const io::TensorData& tensor) {
  const std::vector<float> values = floats_of(tensor);
  std::vector<Half> halves(values.size());
  for (size_t i = 0; i < values.size(); ++i) halves[i] = to_half(values[i]);
  return halves;
}

}  // namespace

void check_output_path(const fs::path& model, const fs::path& output, bool overwrite) {
  const fs::path real_model = fs::weakly_canonical(model), real_output = fs::weakly_canonical(output);
  const auto inside = std::mismatch(real_model.begin(), real_model.end(), real_output.begin(), real_output.end()).first;
  if (inside == real_model.end()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: the output is the model directory or lies inside it", output.string()),
                "choose another place for -o; the input is never written to");
  }
  if (fs::exists(output) &&
      !(fs::is_directory(output) && (fs::is_empty(output) || (overwrite && written_by_us(output))))) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: it exists already", output.string()),
                written_by_us(output) ? "choose another -o, or give --overwrite to replace it"
                                      : "it was not written by Bitwright, so it is left alone; choose another -o");
  }
  const fs::path partial = partial_path(output);
  if (fs::exists(partial) && !fs::exists(partial / kMarker)) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: it exists and was not made by Bitwright", partial.string()),
                "move it away, or choose another -o");
  }
}

OutputBuilder::OutputBuilder(const model::ModelDir& dir, const fs::path& output, const OutputPlan& plan, bool overwrite)
    : dir_(dir), output_(output), partial_(partial_path(output)), plan_(plan) {
  check_output_path(dir.path(), output, overwrite);
  uint64_t layers = 0;
  for (const OutputShard& shard : plan.shards) {
    for (const OutputTensor& t : shard.tensors) layers += t.source.empty() ? t.plan.bytes() : 0;
  }
  const uint64_t needed = plan.bytes + layers + layers / 64, available = io::free_space(partial_);
  if (available < needed) {
    throw Error(ErrorCode::kIo,
                fmt::format("{}: {} are needed while it is written, {} are free", output.string(), format_bytes(needed),
                            format_bytes(available)),
                "make room, or choose another disk for -o");
  }
  file_system(partial_, "remove the remains of an earlier run", [&](auto& e) { fs::remove_all(partial_, e); });
  file_system(partial_, "create the directory", [&](auto& e) { fs::create_directories(partial_ / kLayers, e); });
  io::write_file(partial_ / kMarker, "This directory is being built by bitwright and may be removed.\n");
}

OutputBuilder::~OutputBuilder() {
  std::error_code ignored;
  if (!finished_) fs::remove_all(partial_, ignored);
}

fs::path OutputBuilder::layers_dir() const { return partial_ / kLayers; }

void OutputBuilder::write_shard(const OutputShard& shard, const io::ShardSet* layers) const {
  std::vector<io::TensorPlan> plans;
  for (const OutputTensor& t : shard.tensors) plans.push_back(t.plan);
  std::vector<Half> halves;
  io::write_safetensors(partial_ / shard.file, plans, [&](size_t i) -> std::span<const std::byte> {
    const OutputTensor& t = shard.tensors[i];
    if (t.source.empty()) return layers->require(t.plan.name).bytes;
    const io::TensorData source = dir_.tensors().require(t.source);
    if (source.type() == io::TensorType::kF16) return source.bytes;
    halves = halves_of(source);
    return std::as_bytes(std::span<const Half>(halves));
  });
}

uint64_t OutputBuilder::finish(Run& run) {
  {
    std::optional<io::ShardSet> layers;
    if (!plan_.layouts.empty()) layers.emplace(layers_dir());
    for (size_t i = 0; i < plan_.shards.size(); ++i) {
      run.reporter.progress("compile", static_cast<double>(i), static_cast<double>(plan_.shards.size()),
                            plan_.shards[i].file);
      write_shard(plan_.shards[i], layers ? &*layers : nullptr);
    }
  }
  io::write_file(partial_ / "config.json", plan_.config);
  for (const fs::path& file : plan_.side_files) {
    io::write_file(partial_ / file.filename(), io::read_file(file, uint64_t{4} << 30));
  }
  file_system(partial_, "remove the layers' files", [&](auto& e) { fs::remove_all(layers_dir(), e); });
  file_system(partial_, "remove the marker", [&](auto& e) { fs::remove(partial_ / kMarker, e); });
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(partial_)) bytes += entry.file_size();
  if (bytes != plan_.bytes) {
    throw Error(ErrorCode::kInternal,
                fmt::format("{}: {} bytes were written where {} were planned", output_.string(), bytes, plan_.bytes));
  }
  fs::path replaced = partial_;
  replaced += ".replaced";
  const bool replaces = fs::exists(output_);  // empty, or ours and to be replaced: the constructor checked it
  if (replaces)
    file_system(output_, "move the old directory away from", [&](auto& e) { fs::rename(output_, replaced, e); });
  file_system(output_, "rename the finished directory to", [&](auto& e) { fs::rename(partial_, output_, e); });
  if (replaces) file_system(replaced, "remove the replaced directory", [&](auto& e) { fs::remove_all(replaced, e); });
  io::fsync_directory(fs::absolute(output_).parent_path());
  finished_ = true;
  run.reporter.progress("compile", 1, 1);
  return bytes;
}

void check_half_range(const model::ModelDir& dir) {
  std::set<std::string> weights;
  for (size_t layer = 0; layer < dir.config().n_layers; ++layer) {
    for (size_t k = 0; k < model::kLinearsPerLayer; ++k) {
      weights.insert(dir.linear(layer, static_cast<model::LinearKind>(k)).key + ".weight");
    }
  }
  for (const io::TensorEntry* entry : dir.tensors().entries()) {
    if (!dir.uses(entry->name) || weights.contains(entry->name)) continue;
    const std::vector<float> values = floats_of(dir.tensors().require(entry->name));
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(round_to_half(values[i]))) continue;
      throw Error(ErrorCode::kModel,
                  fmt::format("{}: element {} is {}, which f16 cannot hold", entry->name, i, values[i]),
                  "EXL2 stores this tensor in f16; the model cannot be converted as it is");
    }
  }
}

}  // namespace bw::pipeline
