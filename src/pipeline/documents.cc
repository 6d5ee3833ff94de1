#include "pipeline/documents.h"

#include <algorithm>

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/ascii.h"
#include "bitwright/bitwright.h"
#include "bitwright/error.h"
#include "io/file_write.h"
#include "pipeline/output_config.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostCardBytes = uint64_t{64} << 20;

uint64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

const char* name_of(Effort effort) {
  switch (effort) {
    case Effort::kFast:
      return "fast";
    case Effort::kNormal:
      return "normal";
    case Effort::kBest:
      return "best";
  }
  return "";
}

bool is_name(char c) {
  return (c >= '0' && c <= '9') || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z') || c == '-' || c == '_' || c == '.';
}

// "org/name", as hubs call models.
bool is_hub_id(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size()) return false;
  return text.find('/', slash + 1) == std::string::npos && text[0] != '.' &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_name(c) || c == '/'; });
}

// What the config calls the model, if that is its name on a hub; else its directory's name.
std::string model_name(const model::ModelDir& dir) {
  const io::OrderedJson& config = dir.raw_config();
  if (config.contains("_name_or_path") && config["_name_or_path"].is_string()) {
    if (std::string name = config["_name_or_path"].get<std::string>(); is_hub_id(name)) return name;
  }
  return fs::weakly_canonical(dir.path()).filename().string();
}

// Its bits and price in the plan. shape: what the measurement knows of it.
report::Linear linear_of(const MatrixMeasurement& shape, size_t layer, const OutputPlan& plan) {
  report::Linear linear;
  linear.key = shape.key;
  linear.module = shape.key.substr(shape.key.rfind('.') + 1);
  linear.layer = layer;
  linear.in = shape.in;
  linear.out = shape.out;
  const double weights = static_cast<double>(shape.in) * shape.out;
  linear.layout = "f16";
  linear.bpw = 16 + static_cast<double>(shape.bias_bits) / weights;
  const auto layout = plan.layouts.find(shape.key);
  if (layout == plan.layouts.end()) return linear;
  for (const codec::Candidate& c : shape.candidates) {
    if (!(c.layout == layout->second)) continue;
    linear.layout = c.layout.to_string();
    linear.bpw = static_cast<double>(c.bits) / weights;
    linear.price = c.price;
  }
  return linear;
}

std::vector<report::PlanPoint> points_of(const std::vector<PlanPoint>& points) {
  std::vector<report::PlanPoint> out;
  for (const PlanPoint& p : points) out.push_back({p.bpw, p.kld, p.name});
  return out;
}

// Beside what was measured, what the prices say of the same part of the model.
std::vector<report::TracePoint> trace_of(const std::vector<TracedKld>& traced,
                                         const std::vector<report::Linear>& linears) {
  std::vector<report::TracePoint> trace;
  for (const TracedKld& t : traced) {
    report::TracePoint& point = trace.emplace_back(report::TracePoint{t.quantized_layers, t.head, 0, t.kld});
    for (const report::Linear& l : linears) {
      if (t.head || l.layer < t.quantized_layers) point.predicted += l.price;
    }
  }
  return trace;
}

// The value of a key in the front matter of a model card, where it is one line.
std::string front_matter_value(const std::string& card, std::string_view key) {
  if (!card.starts_with("---")) return {};
  const size_t end = card.find("\n---", 3);
  const std::string begin = "\n" + std::string(key) + ":";
  const size_t at = card.find(begin);
  if (end == std::string::npos || at == std::string::npos || at > end) return {};
  const size_t from = at + begin.size();
  std::string value = card.substr(from, card.find('\n', from) - from);
  const auto strip = [&](std::string_view what) {
    value.erase(0, std::min(value.size(), value.find_first_not_of(what)));
    value.erase(value.find_last_not_of(what) + 1);
  };
  strip(" \t\r");
  strip("\"'");
  return value;
}

std::string text_of(const io::OrderedJson& json) {
  return json.dump(1, ' ', false, io::OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace

report::Report make_report(const Run& run, const model::ModelDir& dir, const ReportSources& from) {
  const QuantizeOptions& o = from.options;
  report::Report r;
  r.version = version();
  r.model = model_name(dir);
  r.architecture = dir.config().architecture;
  r.fingerprint = from.measurement.fingerprint;
  r.command = o.command;
  r.layers = dir.config().n_layers;
  r.hidden = dir.config().hidden;
  r.vocabulary = dir.vocab_rows();
  r.parameters = dir.parameters();
  r.original_bytes = dir.tensors().file_bytes();
  r.bytes = from.plan.bytes;
  r.bpw_linears = from.plan.bpw_linears;
  r.bpw_head = from.plan.bpw_head;
  r.predicted_kld = from.plan.predicted_kld;
  r.measured = from.seen.measured;
  r.held_out = from.seen.held_out;
  for (const LinearMeasurement& l : from.measurement.linears) r.linears.push_back(linear_of(l, l.layer, from.plan));
  r.linears.push_back(linear_of(from.measurement.head, r.layers, from.plan));
  r.trace = trace_of(from.seen.trace, r.linears);
  r.frontier = points_of(frontier_of(from.measurement, from.plan));
  r.uniform = points_of(uniform_plans_of(from.measurement, from.plan));
  r.effort = name_of(o.effort);
  r.device = run.device->name();
  const bool bf16 = run.precision == backend::Precision::kBF16 ||
                    (run.precision == backend::Precision::kAuto && run.device->multiplies_bf16());
  r.arithmetic = bf16 ? "bf16" : "f32";
  r.threads = run.pool.threads();
  r.seed = o.calibration.seed;
  r.calibration = from.measurement.source;
  r.text_fingerprint = from.text_fingerprint;
  r.rows = from.measurement.rows;
  r.length = from.measurement.length;
  r.sources = from.sources;
  r.warnings = run.reporter.warnings();
  r.stages = run.clock.times();
  r.seconds = from.seconds;
  r.peak_memory = peak_memory();
  return r;
}

std::vector<Document> documents_of(const report::Report& report, const OutputPlan& plan) {
  std::string license, original_card;
  const std::vector<std::string> names = side_file_names(plan.side_files);
  for (size_t i = 0; i < names.size(); ++i) {
    if (plan.side_files[i].filename() != kModelCard) continue;
    original_card = names[i];
    license = front_matter_value(io::read_file(plan.side_files[i], kMostCardBytes), "license");
  }
  return {{kReportPage, report::html_page(report)},
          {kReportData, text_of(report::to_json(report))},
          {kModelCard, report::model_card(report, license, original_card)}};
}

uint64_t bytes_of_documents(size_t linears) {
  constexpr uint64_t kFixed = uint64_t{96} << 10, kOfLinear = 2 << 10;
  return kFixed + kOfLinear * linears;
}

report::Report load_report(const fs::path& model) {
  const fs::path file = fs::is_directory(model) ? model / kReportData : model;
  if (!fs::exists(file)) {
    throw Error(ErrorCode::kIo, fmt::format("{}: there is no {}", model.string(), kReportData),
                "give a directory that `bitwright quantize` wrote");
  }
  return report::parse_report(io::load_json(file), file.string());
}

ReportResult report_models(const ReportOptions& options) {
  if (options.models.empty()) {
    throw Error(ErrorCode::kUsage, "no model is given", "give a directory that `bitwright quantize` wrote");
  }
  ReportResult result;
  std::vector<report::Report> reports;
  io::OrderedJson data = io::OrderedJson::array();
  for (const fs::path& model : options.models) {
    const report::Report& r = reports.emplace_back(load_report(model));
    result.models.push_back({r.model,
                             r.bpw_linears,
                             r.bpw_head,
                             r.bytes,
                             r.predicted_kld,
                             {r.measured.kld, r.measured.top1, r.measured.tokens, r.held_out}});
    data.push_back(report::to_json(r));
  }
  const bool one = reports.size() == 1;
  result.page = one ? report::html_page(reports.front()) : report::html_comparison(reports);
  result.data = text_of(one ? data.front() : data);
  return result;
}

}  // namespace bw::pipeline
