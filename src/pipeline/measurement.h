// What a measurement found: for every linear and the head the layouts it may take, with size and price. Saved as JSON
// and reused.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "codec/candidates.h"
#include "io/json.h"
#include "model/model_dir.h"

namespace bw::pipeline {

struct MatrixMeasurement {
  std::string key;
  uint32_t in = 0, out = 0;
  uint64_t bias_bits = 0;
  std::vector<codec::Candidate> candidates;  // empty: stays in f16
};

// Of the decoder. One without candidates shares that with the rest of its block.
struct LinearMeasurement : MatrixMeasurement {
  size_t layer = 0;
  model::LinearKind kind{};
};

// Group size of all the head's candidates.
inline constexpr uint32_t kHeadGroupSize = 32;

struct Measurement {
  std::string fingerprint;  // of the model
  std::string architecture;
  std::string source;  // of the calibration rows
  size_t rows = 0, length = 0;
  std::vector<LinearMeasurement> linears;  // by layer, then kind
  MatrixMeasurement head;                  // candidates: one uniform layout for each width, the smallest first
};

// What is known of any measurement of the model from its shapes alone: every linear and the head, with the uniform
// layouts at price 0 as candidates, or none where it must stay in f16. The loader wants all linears of a block
// (attention, MLP) quantized or none, so one that cannot be stored takes its block with it.
Measurement shape_measurement(const model::ModelDir& dir);

void save_measurement(const Measurement& measurement, const std::filesystem::path& path);
// Throws Error(kModel) naming the file: not JSON, not a measurement, another version, of another model (by its
// fingerprint, or linears or a head that are not the model's), damaged entries.
Measurement load_measurement(const std::filesystem::path& path, const model::ModelDir& dir);

// What load_measurement refuses in one that parse_measurement has read: of another model.
void require_of_model(const Measurement& measurement, const model::ModelDir& dir, const std::string& name);

// True if this is what exllamav2's converter writes as its measurement.
bool is_foreign_measurement(const io::Json& json);

// True if the file is a measurement, of whatever model and version.
bool is_measurement(const std::filesystem::path& path);

// A fingerprint of the model: config, tensor headers and a sample of every tensor's bytes. Equal for equal models.
std::string fingerprint(const model::ModelDir& dir);

// The two parts of Measurement's JSON form; parse is a fuzz target.
io::OrderedJson to_json(const Measurement& measurement);
Measurement parse_measurement(const io::Json& json, const std::string& name);

}  // namespace bw::pipeline
