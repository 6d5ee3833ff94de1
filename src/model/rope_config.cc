#include "model/rope_config.h"

#include <string>

#include "io/printable.h"

namespace bw::model {
namespace {

constexpr double kSlidingTheta = 10000.0;  // of sliding layers with a base of their own, where config.json gives none

bool same(const RopeConfig& a, const RopeConfig& b) {
  return a.theta == b.theta && a.scaling == b.scaling && a.factor == b.factor &&
         a.low_freq_factor == b.low_freq_factor && a.high_freq_factor == b.high_freq_factor &&
         a.original_max_position == b.original_max_position;
}

// "rope_type", which older files call "type".
std::string read_type(const ConfigReader& object) {
  const std::optional<std::string> type = object.text("rope_type"), old = object.text("type");
  if (type && old && *type != *old) {
    object.fail("rope_type is '" + io::printable(*type) + "', but type is '" + io::printable(*old) + "'");
  }
  return type.value_or(old.value_or("default"));
}

// One set of parameters: the object of "rope_scaling", of "rope_parameters", or of one of its layer types.
RopeConfig read_object(const io::Json& json, const std::string& name, double theta, size_t max_position) {
  const ConfigReader object(json, name);
  RopeConfig rope;
  rope.theta = object.positive("rope_theta").value_or(theta);
  if (object.positive("partial_rotary_factor").value_or(1.0) != 1.0) {
    object.fail("partial_rotary_factor is not 1: rotating a part of the head only is not supported");
  }
  const std::string type = read_type(object);
  if (type == "default") return rope;
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "dynamic") {
    rope.scaling = RopeScaling::kDynamic;
    rope.original_max_position = max_position;
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.low_freq_factor = object.require_positive("low_freq_factor");
    rope.high_freq_factor = object.require_positive("high_freq_factor");
    if (rope.high_freq_factor <= rope.low_freq_factor) object.fail("high_freq_factor is not above low_freq_factor");
    rope.original_max_position =
        object.count({"original_max_position_embeddings"}, kMaxPositions).value_or(max_position);
  } else {
    object.fail("unknown rope type '" + io::printable(type) + "'; known are default, linear, dynamic, llama3");
  }
  rope.factor = object.require_positive("factor");
  return rope;
}

// The parameters of all layers (or of the full-attention layers, where the sliding ones have their own).
RopeConfig read_full(const ConfigReader& reader, const std::string& name, const io::Json* parameters,
                     double default_theta, size_t max_position) {
  const double theta = reader.positive("rope_theta").value_or(default_theta);
  const io::Json* scaling = reader.find("rope_scaling");
  if (scaling != nullptr && scaling->is_object() && scaling->empty()) scaling = nullptr;
  RopeConfig rope;
  rope.theta = theta;
  if (scaling != nullptr) rope = read_object(*scaling, name + ": rope_scaling", theta, max_position);
  if (parameters == nullptr) return rope;
  const std::optional<double> own = ConfigReader(*parameters, name + ": rope_parameters").positive("rope_theta");
  if (own && reader.positive("rope_theta") && *own != theta) {
    reader.fail("rope_theta and rope_parameters contradict each other");
  }
  const RopeConfig newer = read_object(*parameters, name + ": rope_parameters", theta, max_position);
  if (scaling != nullptr && !same(rope, newer)) reader.fail("rope_scaling and rope_parameters contradict each other");
  return newer;
}

}  // namespace

void read_rope(const ConfigReader& reader, const std::string& name, const Architecture& architecture,
               ModelConfig& config) {
  const double default_theta = architecture.defaults.rope_theta;
  if (reader.positive("partial_rotary_factor").value_or(1.0) != 1.0) {
    reader.fail("partial_rotary_factor is not 1: rotating a part of the head only is not supported");
  }
  const io::Json* parameters = reader.find("rope_parameters");
  if (parameters == nullptr) {
    config.rope = config.rope_sliding = read_full(reader, name, nullptr, default_theta, config.max_position);
    if (!architecture.two_ropes) return;
    config.rope_sliding = RopeConfig{};
    config.rope_sliding.theta = reader.positive("rope_local_base_freq").value_or(kSlidingTheta);
    return;
  }
  const ConfigReader object(*parameters, name + ": rope_parameters");
  const io::Json *full = object.find("full_attention"), *sliding = object.find("sliding_attention");
  const bool nested = full != nullptr || sliding != nullptr;
  if (nested != architecture.two_ropes && !parameters->empty()) {
    object.fail(architecture.two_ropes ? "expected 'full_attention' and 'sliding_attention' in it"
                                       : "parameters for each layer type do not belong to this architecture");
  }
  if (!architecture.two_ropes) {
    config.rope = config.rope_sliding = read_full(reader, name, parameters, default_theta, config.max_position);
    return;
  }
  config.rope = read_full(reader, name, full, default_theta, config.max_position);
  const double local = reader.positive("rope_local_base_freq").value_or(kSlidingTheta);
  config.rope_sliding = RopeConfig{};
  config.rope_sliding.theta = local;
  if (sliding != nullptr) {
    config.rope_sliding =
        read_object(*sliding, name + ": rope_parameters: sliding_attention", local, config.max_position);
  }
}

}  // namespace bw::model
