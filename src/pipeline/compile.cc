#include "pipeline/compile.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <system_error>

#include <fmt/format.h>

#include "base/half.h"
#include "bitwright/error.h"
#include "bitwright/units.h"
#include "io/file_write.h"
#include "pipeline/output_config.h"
#include "pipeline/output_place.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;

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

void check_space(const fs::path& output, uint64_t bytes) {
  // The layers' files stand beside the shards until these are complete.
  const uint64_t needed = 2 * bytes, available = io::free_space(output);
  if (available >= needed) return;
  throw Error(ErrorCode::kIo,
              fmt::format("{}: {} are needed while it is written, {} are free", output.string(), format_bytes(needed),
                          format_bytes(available)),
              "make room, or choose another disk for -o");
}

OutputBuilder::OutputBuilder(const model::ModelDir& dir, const fs::path& output, bool overwrite)
    : dir_(dir), output_(output), partial_(partial_of(output)) {
  check_output_path(dir.path(), output, overwrite);
  file_system(partial_, "create the directory", [&](auto& e) { fs::create_directories(partial_, e); });
  lock_.emplace(partial_ / kPartialMarker);
  for (const auto& entry : fs::directory_iterator(partial_)) {
    if (entry.path().filename() == kPartialMarker) continue;
    file_system(entry.path(), "remove the remains of an earlier run",
                [&](auto& e) { fs::remove_all(entry.path(), e); });
  }
  owned_ = true;
}

OutputBuilder::~OutputBuilder() {
  std::error_code ignored;
  if (owned_) fs::remove_all(partial_, ignored);
}

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

uint64_t OutputBuilder::finish(Run& run, const OutputPlan& plan, const fs::path& layers_dir,
                               const std::vector<Document>& documents,
                               const std::function<void(uint64_t bytes)>& complete) {
  const auto total = static_cast<double>(plan.bytes);
  {
    std::optional<io::ShardSet> layers;
    if (!plan.layouts.empty()) layers.emplace(layers_dir);
    double written = 0;
    for (const OutputShard& shard : plan.shards) {
      run.reporter.progress("compile", written, total, shard.file, "bytes");
      write_shard(shard, layers ? &*layers : nullptr);
      written += static_cast<double>(shard.bytes);
    }
  }
  io::write_file(partial_ / "config.json", plan.config);
  const std::vector<std::string> names = side_file_names(plan.side_files);
  for (size_t i = 0; i < names.size(); ++i) {
    io::write_file(partial_ / names[i], io::read_file(plan.side_files[i], uint64_t{4} << 30));
  }
  uint64_t bytes = 0;  // the marker has none
  for (const auto& entry : fs::directory_iterator(partial_)) bytes += entry.file_size();
  if (bytes != plan.bytes) {
    throw Error(ErrorCode::kInternal,
                fmt::format("{}: {} bytes were written where {} were planned", output_.string(), bytes, plan.bytes));
  }
  for (const Document& document : documents) io::write_file(partial_ / document.name, document.text);
  io::fsync_directory(partial_);
  complete(bytes);
  const fs::path replaced = replaced_of(output_);
  const bool replaces = fs::exists(output_);  // empty, or ours and to be replaced: the constructor checked it
  if (replaces) {
    file_system(output_, "move the old directory away from", [&](auto& e) { fs::rename(output_, replaced, e); });
  }
  file_system(output_, "rename the finished directory to", [&](auto& e) {
    fs::rename(partial_, output_, e);
    std::error_code ignored;
    if (e && replaces) fs::rename(replaced, output_, ignored);
  });
  if (replaces) file_system(replaced, "remove the replaced directory", [&](auto& e) { fs::remove_all(replaced, e); });
  io::fsync_directory(fs::absolute(output_).parent_path());
  owned_ = false;
  file_system(output_, "remove the marker from", [&](auto& e) { fs::remove(output_ / kPartialMarker, e); });
  run.reporter.progress("compile", total, total, {}, "bytes");
  return bytes;
}

void check_half_range(const model::ModelDir& dir) {
  std::set<std::string> quantized;
  for (const LinearMeasurement& linear : shape_measurement(dir).linears) {
    if (!linear.candidates.empty()) quantized.insert(linear.key + ".weight");
  }
  for (const io::TensorEntry* entry : dir.tensors().entries()) {
    if (!dir.uses(entry->name) || quantized.contains(dir.reference_name(entry->name))) continue;
    const std::vector<float> values = floats_of(dir.tensors().require(entry->name));
    const auto bad =
        std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(round_to_half(x)); });
    if (bad == values.end()) continue;
    throw Error(ErrorCode::kModel,
                fmt::format("{}: element {} is {}, which f16 cannot hold", entry->name, bad - values.begin(), *bad),
                "EXL2 stores this tensor in f16; the model cannot be converted as it is");
  }
}

}  // namespace bw::pipeline
