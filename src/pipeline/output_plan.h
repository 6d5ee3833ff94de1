// Everything about the output directory that is known before any weight is quantized: layouts, tensors, files, exact
// sizes.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bitwright/options.h"
#include "io/safetensors.h"
#include "model/model_dir.h"
#include "pipeline/measurement.h"

namespace bw::pipeline {

// One tensor of the output: a source tensor as f16, or one of the five parts of a quantized linear.
struct OutputTensor {
  io::TensorPlan plan;
  std::string source;  // source tensor's stored name; empty for a part of a quantized linear
};

struct OutputShard {
  std::string file;
  std::vector<OutputTensor> tensors;
  uint64_t bytes = 0;
};

struct OutputPlan {
  std::map<std::string, quant::Layout> layouts;  // by key; a linear that is absent stays in f16
  double bpw_linears = 0;                        // of the decoder's linears, all stored bits
  double bpw_head = 0;
  double predicted_kld = 0;  // nats per token: the sum of the prices of all that is quantized
  std::vector<OutputShard> shards;
  std::string config;                             // config.json
  std::vector<std::filesystem::path> side_files;  // copied as they are
  uint64_t bytes = 0;                             // of all files together
};

// What is asked of a plan besides the layouts.
struct OutputOptions {
  std::optional<int> head_bits = kDefaultHeadBits;  // nullopt: chosen with the linears, see QuantizeOptions
  uint64_t shard_bytes = 0;
  double label_bpw = 0;  // for quantization_config.bits; 0: what the linears reach
};

// Bits that the decoder's linears take where all blocks that must stay in f16 do, and the reach of the others.
struct Reach {
  uint64_t weights = 0;                // of all decoder linears
  uint64_t plain_bits = 0;             // of linears that stay in f16, biases included
  uint64_t smallest = 0, largest = 0;  // total bits, plain_bits included
  double smallest_bpw() const { return static_cast<double>(smallest) / static_cast<double>(weights); }
  double largest_bpw() const { return static_cast<double>(largest) / static_cast<double>(weights); }
};
Reach reach_of(const Measurement& measurement);
// Throws Error(kUsage) naming the option and the reachable range if bpw is outside.
void check_bpw(double bpw, const Reach& reach);
// The same for the size of the whole directory, known from the model's shapes alone.
void check_size(const model::ModelDir& dir, uint64_t bytes, const OutputOptions& options);

// The best layouts within `bpw` bits a weight (and, where the head's width is free, within the bits of a head of
// kDefaultHeadBits together with it), and the directory they make.
OutputPlan plan_for_bpw(const model::ModelDir& dir, const Measurement& m, double bpw, OutputOptions options);
// The same within `bytes` for the whole directory; the errors of check_size.
OutputPlan plan_for_size(const model::ModelDir& dir, const Measurement& m, uint64_t bytes, OutputOptions options);

// A size of the linears and what the best plan of that size, or the uniform one, is predicted to cost; the head takes
// what `plan` gives it.
struct PlanPoint {
  double bpw = 0, kld = 0;
  std::string name;  // of a uniform plan
};
// At even steps over the reach, at what `plan` takes itself and a quarter of a bit to both sides; by size.
std::vector<PlanPoint> frontier_of(const Measurement& m, const OutputPlan& plan);
// The same width and group size for all linears that are quantized.
std::vector<PlanPoint> uniform_plans_of(const Measurement& m, const OutputPlan& plan);

}  // namespace bw::pipeline
