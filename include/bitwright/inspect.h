// What inspection tells of a model, a file of tensors, a measurement or a work folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace bw {

// What is stored under one key: the weight of a linear, an embedding, a norm.
struct PartReport {
  std::string key;              // "model.layers.3.self_attn.q_proj"
  std::optional<size_t> layer;  // none: of no decoder layer
  std::string module;           // "q_proj"
  size_t in = 0, out = 0;       // of a weight (out, in); of one with one dimension, out is 1
  std::string layout;           // "6b128g64 4b448g64"; the stored type for what is not quantized
  uint64_t bytes = 0;           // of all its tensors but a bias
  double bpw = 0;               // bits of these, by in × out
};

// Of a model directory.
struct InspectResult {
  std::string architecture;
  size_t layers = 0, hidden = 0, vocabulary = 0;
  size_t parameters = 0;
  uint64_t tensor_bytes = 0, directory_bytes = 0;
  bool quantized = false, tied = false;
  // Of the decoder's linears; of the head; of both; of all tensors, embedding and norms included (a head that is the
  // embedding counts once).
  double bpw_linears = 0, bpw_head = 0, bpw_linears_and_head = 0, bpw_all = 0;
  std::vector<PartReport> linears;  // by layer, then module; the head last
  PartReport embedding;
  std::vector<std::string> warnings;
};

// Of one .safetensors file.
struct FileReport {
  uint64_t file_bytes = 0, tensor_bytes = 0;
  size_t tensors = 0;
  uint64_t weights = 0;                         // of all parts
  double bpw = 0;                               // of all parts
  std::map<std::string, std::string> metadata;  // of its header
  std::vector<PartReport> parts;                // by name
};

struct PricedLayout {
  std::string layout;
  uint64_t bytes = 0;
  double price = 0;  // see MeasurementReport
};

struct MeasuredPart {
  std::string key;
  std::optional<size_t> layer;  // none: the head
  std::string module;
  size_t in = 0, out = 0;             // 0: not told
  std::vector<PricedLayout> layouts;  // the smallest first; empty: it stays in f16
};

// Of a measurement. Prices are nats per token; in one that exllamav2 wrote (`foreign`), they are relative errors of
// whole blocks (attention, MLP), which do not add up, and Bitwright does not quantize by them.
struct MeasurementReport {
  bool foreign = false;
  std::string architecture, source;  // source: of the calibration rows
  size_t rows = 0, length = 0;
  double smallest_bpw = 0, largest_bpw = 0;  // reach of --bpw
  std::vector<MeasuredPart> parts;           // by layer; the head last
};

// A step of a job: `done` of `total` layers (0: not known) where it is begun.
struct JobStep {
  enum class State { kWaiting, kBegun, kDone };
  std::string name;  // "measure", "4bpw"
  std::string output;
  State state = State::kWaiting;
  size_t done = 0, total = 0;
};

// Of a work folder. What is finished is known from the folder alone; steps that nothing was begun of, other than
// measuring, are not.
struct JobReport {
  uint64_t bytes = 0;
  std::vector<JobStep> steps;
};

using InspectReport = std::variant<InspectResult, FileReport, MeasurementReport, JobReport>;

}  // namespace bw
