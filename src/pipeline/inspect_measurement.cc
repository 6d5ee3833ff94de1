// Measurements: our own, and those of exllamav2 as far as they say something to a reader.
#include <algorithm>

#include <fmt/format.h>

#include "bitwright/error.h"
#include "io/printable.h"
#include "pipeline/inspect.h"
#include "pipeline/measurement.h"
#include "pipeline/output_plan.h"

namespace bw::pipeline {
namespace {

MeasuredPart part_of(const MatrixMeasurement& matrix, std::optional<size_t> layer, std::string_view module) {
  MeasuredPart part{matrix.key, layer, std::string(module), matrix.in, matrix.out, {}};
  for (const codec::Candidate& c : matrix.candidates) {
    part.layouts.push_back({c.layout.to_string(), c.bits / 8, c.price});
  }
  return part;
}

void sort_layouts(MeasuredPart& part) {
  std::stable_sort(part.layouts.begin(), part.layouts.end(),
                   [](const PricedLayout& a, const PricedLayout& b) { return a.bytes < b.bytes; });
}

MeasurementReport own_report(const Measurement& m) {
  MeasurementReport r;
  r.architecture = m.architecture;
  r.source = m.source;
  r.rows = m.rows;
  r.length = m.length;
  for (const LinearMeasurement& linear : m.linears) {
    r.parts.push_back(part_of(linear, linear.layer, model::linear_name(linear.kind)));
  }
  r.parts.push_back(part_of(m.head, std::nullopt, "lm_head"));
  for (MeasuredPart& part : r.parts) sort_layouts(part);
  const Reach reach = reach_of(m);
  if (reach.weights > 0) {
    r.smallest_bpw = reach.smallest_bpw();
    r.largest_bpw = reach.largest_bpw();
  }
  return r;
}

[[noreturn]] void damaged(const std::string& name, const std::string& key) {
  throw Error(ErrorCode::kModel, fmt::format("{}: exllamav2's entry '{}' is damaged", name, io::printable(key)));
}

// The widths of each linear of a block: "q_proj 4 k_proj 4 5".
std::string foreign_layout(const io::Json& option) {
  std::string text;
  for (const auto& [linear, parameters] : option.items()) {
    if (!parameters.is_object() || !parameters.contains("bits") || !parameters["bits"].is_array()) continue;
    text += (text.empty() ? "" : " ") + io::printable(linear);
    for (const io::Json& bits : parameters["bits"]) text += " " + io::printable(bits.dump());
  }
  return text;
}

MeasuredPart foreign_part(const std::string& key, const io::Json& options, const std::string& name) {
  MeasuredPart part;
  part.key = io::printable(key);
  part.module = part.key.substr(part.key.rfind('.') + 1);
  if (!options.is_array()) damaged(name, key);
  for (const io::Json& option : options) {
    const auto number = [&](const char* what) {
      if (!option.is_object() || !option.contains(what) || !option[what].is_number()) damaged(name, key);
      return option[what].get<double>();
    };
    const double bits = number("total_bits");
    if (!(bits >= 0 && bits < 1e15)) damaged(name, key);
    part.layouts.push_back({foreign_layout(option), static_cast<uint64_t>(bits) / 8, 1 - number("accuracy")});
  }
  sort_layouts(part);
  return part;
}

MeasurementReport foreign_report(const io::Json& json, const std::string& name) {
  MeasurementReport r;
  r.foreign = true;
  if (!json["measurement"].is_object()) damaged(name, "measurement");
  for (const auto& [key, options] : json["measurement"].items()) {
    r.parts.push_back(foreign_part(key, options, name));
    r.parts.back().layer = layer_of_key(key);
  }
  std::stable_sort(r.parts.begin(), r.parts.end(),
                   [](const MeasuredPart& a, const MeasuredPart& b) { return a.layer < b.layer; });
  return r;
}

}  // namespace

MeasurementReport inspect_measurement(const std::filesystem::path& path) {
  const io::Json json = io::load_json(path);
  if (is_foreign_measurement(json)) return foreign_report(json, path.string());
  if (!json.is_object() || !json.contains("format")) {
    throw Error(ErrorCode::kModel,
                fmt::format("{}: no measurement, neither Bitwright's nor exllamav2's", path.string()),
                "give a model directory, a .safetensors file, a measurement or a work folder");
  }
  return own_report(parse_measurement(json, path.string()));
}

}  // namespace bw::pipeline
