#include "pipeline/measurement.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/hash.h"
#include "bitwright/error.h"
#include "codec/exl2.h"
#include "io/file_write.h"
#include "io/printable.h"
#include "nn/decoder.h"

namespace bw::pipeline {
namespace {

constexpr const char* kFormat = "bitwright-measurement";
constexpr int kVersion = 3;  // 2: prices in nats; 3: the head, too

[[noreturn]] void damaged(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kModel, fmt::format("{}: {}", name, why), "measure the model again");
}

const io::Json& member(const io::Json& object, const char* key, const std::string& name) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || it == object.end()) damaged(name, fmt::format("the key '{}' is missing", key));
  return *it;
}

uint64_t unsigned_of(const io::Json& object, const char* key, const std::string& name, uint64_t limit) {
  const io::Json& value = member(object, key, name);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > limit) {
    damaged(name, fmt::format("'{}' is not a whole number up to {}", key, limit));
  }
  return value.get<uint64_t>();
}

std::string string_of(const io::Json& object, const char* key, const std::string& name) {
  const io::Json& value = member(object, key, name);
  if (!value.is_string()) damaged(name, fmt::format("'{}' is not a string", key));
  return value.get<std::string>();
}

// [[bits, rows, group size], ...]
quant::Layout parse_layout(const io::Json& runs, uint32_t in, const std::string& name) {
  quant::Layout layout;
  if (!runs.is_array() || runs.empty() || runs.size() > quant::kWidths)
    damaged(name, "a layout has no runs, or too many");
  for (const io::Json& run : runs) {
    if (!run.is_array() || run.size() != 3) damaged(name, "a run of a layout is not [bits, rows, group size]");
    for (const io::Json& x : run) {
      if (!x.is_number_unsigned() || x.get<uint64_t>() > UINT32_MAX)
        damaged(name, "a run of a layout holds no whole numbers");
    }
    layout.runs.push_back({static_cast<int>(std::min<uint64_t>(run[0].get<uint64_t>(), 99)), run[1].get<uint32_t>(),
                           run[2].get<uint32_t>()});
  }
  layout.validate(in, name);
  return layout;
}

constexpr double kMostPrice = 1e12;  // nats: far beyond any real one, so that sums of them stay finite

codec::Candidate parse_candidate(const io::Json& json, const MatrixMeasurement& matrix, const std::string& name) {
  codec::Candidate c;
  c.layout = parse_layout(member(json, "layout", name), matrix.in, name);
  const io::Json& price = member(json, "price", name);
  if (!price.is_number() || !(price.get<double>() >= 0 && price.get<double>() <= kMostPrice)) {
    damaged(name, fmt::format("a price is not a number from 0 to {:g}", kMostPrice));
  }
  c.price = price.get<double>();
  c.bits = codec::stored_bits(c.layout, matrix.out) + matrix.bias_bits;
  return c;
}

MatrixMeasurement parse_matrix(const io::Json& json, const std::string& name) {
  MatrixMeasurement matrix;
  matrix.key = string_of(json, "key", name);
  const std::string where = name + ": " + io::printable(matrix.key);
  matrix.in = static_cast<uint32_t>(unsigned_of(json, "in", where, 1u << 30));
  matrix.out = static_cast<uint32_t>(unsigned_of(json, "out", where, 1u << 30));
  matrix.bias_bits = unsigned_of(json, "bias_bits", where, uint64_t{1} << 40);
  const io::Json& list = member(json, "candidates", where);
  if (!list.is_array()) damaged(where, "'candidates' is not a list");
  if (!list.empty() && !codec::can_store(matrix.in, matrix.out)) {
    damaged(where, fmt::format("candidates for {} x {}, which cannot be stored", matrix.out, matrix.in));
  }
  for (const io::Json& candidate : list) matrix.candidates.push_back(parse_candidate(candidate, matrix, where));
  return matrix;
}

LinearMeasurement parse_linear(const io::Json& json, const std::string& name) {
  LinearMeasurement linear{parse_matrix(json, name)};
  const std::string where = name + ": " + io::printable(linear.key);
  linear.layer = unsigned_of(json, "layer", where, 1u << 20);
  linear.kind = static_cast<model::LinearKind>(unsigned_of(json, "kind", where, model::kLinearsPerLayer - 1));
  return linear;
}

io::OrderedJson matrix_json(const MatrixMeasurement& matrix) {
  io::OrderedJson candidates = io::OrderedJson::array();
  for (const codec::Candidate& c : matrix.candidates) {
    io::OrderedJson runs = io::OrderedJson::array();
    for (const quant::BitRun& run : c.layout.runs) runs.push_back({run.bits, run.rows, run.group_size});
    candidates.push_back({{"layout", runs}, {"bits", c.bits}, {"price", c.price}});
  }
  return {{"key", matrix.key},
          {"in", matrix.in},
          {"out", matrix.out},
          {"bias_bits", matrix.bias_bits},
          {"candidates", candidates}};
}

bool same_shape(const MatrixMeasurement& a, const MatrixMeasurement& b) {
  return a.key == b.key && a.in == b.in && a.out == b.out && a.bias_bits == b.bias_bits;
}

// The head as the model has it, with the same layouts in the same order.
bool same_head(const MatrixMeasurement& a, const MatrixMeasurement& b) {
  const auto same_layout = [](const codec::Candidate& x, const codec::Candidate& y) { return x.layout == y.layout; };
  return same_shape(a, b) &&
         std::equal(a.candidates.begin(), a.candidates.end(), b.candidates.begin(), b.candidates.end(), same_layout);
}

MatrixMeasurement head_shape(const model::ModelDir& dir) {
  const model::LinearInfo info = dir.head();
  const auto in = static_cast<uint32_t>(info.in), out = static_cast<uint32_t>(info.out);
  MatrixMeasurement head{dir.reference_name(info.key), in, out, 0, {}};
  if (!codec::can_store(info.in, info.out)) return head;
  for (size_t width = quant::kWidths; width-- > 0;) {
    const quant::Layout layout = quant::uniform_layout(in, quant::kBitWidths[width], kHeadGroupSize);
    head.candidates.push_back({layout, codec::stored_bits(layout, out), 0});
  }
  return head;
}

}  // namespace

io::OrderedJson to_json(const Measurement& m) {
  io::OrderedJson linears = io::OrderedJson::array();
  for (const LinearMeasurement& linear : m.linears) {
    linears.push_back(matrix_json(linear));
    linears.back()["layer"] = linear.layer;
    linears.back()["kind"] = static_cast<int>(linear.kind);
  }
  return {{"format", kFormat},
          {"version", kVersion},
          {"model", m.fingerprint},
          {"architecture", m.architecture},
          {"calibration", {{"source", m.source}, {"rows", m.rows}, {"length", m.length}}},
          {"linears", linears},
          {"head", matrix_json(m.head)}};
}

bool is_foreign_measurement(const io::Json& json) {
  return json.is_object() && json.contains("measurement") && json.contains("last_module_idx");
}

Measurement parse_measurement(const io::Json& json, const std::string& name) {
  if (is_foreign_measurement(json)) {
    damaged(
        name,
        "exllamav2 wrote this measurement; its prices are relative errors of whole blocks, not nats of each linear, "
        "and say nothing of the layouts that Bitwright chooses from");
  }
  if (!json.is_object() || !json.contains("format") || json["format"] != kFormat) {
    damaged(name, "this is not a measurement that Bitwright wrote");
  }
  if (member(json, "version", name) != kVersion) {
    damaged(name, fmt::format("measurement version {}, this program reads version {}",
                              io::printable(json["version"].dump()), kVersion));
  }
  Measurement m;
  m.fingerprint = string_of(json, "model", name);
  m.architecture = string_of(json, "architecture", name);
  const io::Json& calibration = member(json, "calibration", name);
  m.source = string_of(calibration, "source", name);
  m.rows = unsigned_of(calibration, "rows", name, UINT32_MAX);
  m.length = unsigned_of(calibration, "length", name, UINT32_MAX);
  const io::Json& linears = member(json, "linears", name);
  if (!linears.is_array()) damaged(name, "'linears' is not a list");
  for (const io::Json& linear : linears) m.linears.push_back(parse_linear(linear, name));
  m.head = parse_matrix(member(json, "head", name), name);
  return m;
}

void save_measurement(const Measurement& measurement, const std::filesystem::path& path) {
  io::write_file(path, to_json(measurement).dump() + "\n");
}

Measurement load_measurement(const std::filesystem::path& path, const model::ModelDir& dir) {
  Measurement m = parse_measurement(io::load_json(path), path.string());
  require_of_model(m, dir, path.string());
  return m;
}

void require_of_model(const Measurement& m, const model::ModelDir& dir, const std::string& name) {
  const std::string model = fingerprint(dir);
  if (m.fingerprint != model) {
    damaged(name, fmt::format("it was measured on another model (fingerprint {}, this model has {})",
                              io::printable(m.fingerprint), model));
  }
  const Measurement shapes = shape_measurement(dir);
  if (m.linears.size() != shapes.linears.size()) {
    damaged(name, fmt::format("it has {} linears, the model {}", m.linears.size(), shapes.linears.size()));
  }
  for (size_t i = 0; i < m.linears.size(); ++i) {
    const LinearMeasurement &found = m.linears[i], &expected = shapes.linears[i];
    if (!same_shape(found, expected) || found.layer != expected.layer || found.kind != expected.kind ||
        found.candidates.empty() != expected.candidates.empty()) {
      damaged(name, fmt::format("entry {} ({}) does not describe the model's {} of {} x {}", i,
                                io::printable(found.key), expected.key, expected.out, expected.in));
    }
  }
  if (!same_head(m.head, shapes.head)) {
    damaged(name, fmt::format("the entry of the head ({}) does not describe the model's {} of {} x {} at {} widths",
                              io::printable(m.head.key), shapes.head.key, shapes.head.out, shapes.head.in,
                              shapes.head.candidates.size()));
  }
}

bool is_measurement(const std::filesystem::path& path) {
  try {
    const io::Json json = io::load_json(path);
    return json.is_object() && json.contains("format") && json["format"] == kFormat;
  } catch (const Error&) {
    return false;
  }
}

Measurement shape_measurement(const model::ModelDir& dir) {
  Measurement m;
  m.architecture = dir.config().architecture;
  const auto in_attention = [](model::LinearKind kind) { return nn::site_of(kind) < 2; };
  for (size_t layer = 0; layer < dir.config().n_layers; ++layer) {
    std::array<bool, 2> storable = {true, true};  // MLP, attention
    for (size_t k = 0; k < model::kLinearsPerLayer; ++k) {
      const auto kind = static_cast<model::LinearKind>(k);
      const model::LinearInfo info = dir.linear(layer, kind);
      storable[in_attention(kind)] &= codec::can_store(info.in, info.out);
      m.linears.push_back({{dir.reference_name(info.key),
                            static_cast<uint32_t>(info.in),
                            static_cast<uint32_t>(info.out),
                            info.has_bias ? 16 * uint64_t{info.out} : 0,
                            {}},
                           layer,
                           kind});
    }
    for (auto linear = m.linears.end() - model::kLinearsPerLayer; linear != m.linears.end(); ++linear) {
      if (storable[in_attention(linear->kind)]) {
        linear->candidates = codec::uniform_candidates(linear->in, linear->out, linear->bias_bits);
      }
    }
  }
  m.head = head_shape(dir);
  return m;
}

std::string fingerprint(const model::ModelDir& dir) {
  constexpr size_t kSampleBytes = 4096;
  Hasher hasher;
  const std::string config = dir.raw_config().dump();
  hasher.update(std::as_bytes(std::span(config.data(), config.size())));
  for (const io::TensorEntry* entry : dir.tensors().entries()) {
    hasher.update(std::as_bytes(std::span(entry->name.data(), entry->name.size())));
    hasher.update_values(std::span<const uint64_t>(entry->shape));
    const std::span<const std::byte> bytes = dir.tensors().require(entry->name).bytes;
    const size_t n = std::min(bytes.size(), kSampleBytes);
    hasher.update(bytes.first(n));
    hasher.update(bytes.subspan((bytes.size() - n) / 2, n));
    hasher.update(bytes.last(n));
  }
  return hasher.hex();
}

}  // namespace bw::pipeline
