#include <cmath>

#include <fmt/format.h>

#include "bitwright/error.h"
#include "report/report.h"

namespace bw::report {
namespace {

using io::Json;
using io::OrderedJson;

constexpr const char* kFormat = "bitwright report";
constexpr int kFormatVersion = 2;

OrderedJson number(double x) { return std::isfinite(x) ? OrderedJson(x) : OrderedJson(nullptr); }
double number_of(const Json& j) { return j.is_null() ? std::nan("") : j.get<double>(); }

OrderedJson to_json(const Estimate& e) { return {{"value", number(e.value)}, {"error", number(e.error)}}; }
Estimate estimate_of(const Json& j) { return {number_of(j.at("value")), number_of(j.at("error"))}; }

// A size; nlohmann would take -1 and 1.5 for one.
uint64_t size_of(const Json& object, const char* key) {
  const Json& j = object.at(key);
  if (!j.is_number_unsigned()) throw Error(ErrorCode::kModel, fmt::format("'{}' is no size", key));
  return j.get<uint64_t>();
}

OrderedJson measured_json(const EvaluateResult& r) {
  return {{"tokens", r.tokens},
          {"kld", to_json(r.kld)},
          {"kld_percentiles",
           {{"50", number(r.kld_median)},
            {"90", number(r.kld_p90)},
            {"99", number(r.kld_p99)},
            {"99.9", number(r.kld_p999)},
            {"100", number(r.kld_max)}}},
          {"same_top_token", to_json(r.top1)},
          {"perplexity", to_json(r.perplexity)},
          {"original_perplexity", to_json(r.reference_perplexity)}};
}

EvaluateResult measured_of(const Json& j) {
  EvaluateResult r;
  r.has_reference = true;
  r.tokens = size_of(j, "tokens");
  r.kld = estimate_of(j.at("kld"));
  const Json& p = j.at("kld_percentiles");
  r.kld_median = number_of(p.at("50"));
  r.kld_p90 = number_of(p.at("90"));
  r.kld_p99 = number_of(p.at("99"));
  r.kld_p999 = number_of(p.at("99.9"));
  r.kld_max = number_of(p.at("100"));
  r.top1 = estimate_of(j.at("same_top_token"));
  r.perplexity = estimate_of(j.at("perplexity"));
  r.reference_perplexity = estimate_of(j.at("original_perplexity"));
  return r;
}

OrderedJson linears_json(const std::vector<Linear>& linears) {
  OrderedJson list = OrderedJson::array();
  for (const Linear& l : linears) {
    list.push_back({{"key", l.key},
                    {"module", l.module},
                    {"layer", l.layer},
                    {"in", l.in},
                    {"out", l.out},
                    {"layout", l.layout},
                    {"bpw", number(l.bpw)},
                    {"price", number(l.price)}});
  }
  return list;
}

std::vector<Linear> linears_of(const Json& list) {
  std::vector<Linear> linears;
  for (const Json& j : list) {
    linears.push_back({j.at("key").get<std::string>(), j.at("module").get<std::string>(), size_of(j, "layer"),
                       size_of(j, "in"), size_of(j, "out"), j.at("layout").get<std::string>(), number_of(j.at("bpw")),
                       number_of(j.at("price"))});
  }
  return linears;
}

OrderedJson trace_json(const std::vector<TracePoint>& trace) {
  OrderedJson list = OrderedJson::array();
  for (const TracePoint& p : trace) {
    list.push_back(
        {{"layers", p.layers}, {"head", p.head}, {"predicted_kld", number(p.predicted)}, {"kld", to_json(p.measured)}});
  }
  return list;
}

std::vector<TracePoint> trace_of(const Json& list) {
  std::vector<TracePoint> trace;
  for (const Json& j : list) {
    trace.push_back(
        {size_of(j, "layers"), j.at("head").get<bool>(), number_of(j.at("predicted_kld")), estimate_of(j.at("kld"))});
  }
  return trace;
}

OrderedJson points_json(const std::vector<PlanPoint>& points) {
  OrderedJson list = OrderedJson::array();
  for (const PlanPoint& p : points) {
    list.push_back({{"bpw", number(p.bpw)}, {"predicted_kld", number(p.kld)}, {"name", p.name}});
  }
  return list;
}

std::vector<PlanPoint> points_of(const Json& list) {
  std::vector<PlanPoint> points;
  for (const Json& j : list) {
    points.push_back({number_of(j.at("bpw")), number_of(j.at("predicted_kld")), j.at("name").get<std::string>()});
  }
  return points;
}

OrderedJson sources_json(const std::vector<CalibrationSource>& sources) {
  OrderedJson list = OrderedJson::array();
  for (const CalibrationSource& s : sources) {
    list.push_back({{"name", s.name},
                    {"files", s.files},
                    {"texts", s.texts},
                    {"tokens", s.tokens},
                    {"rows", s.rows},
                    {"used_tokens", s.used_tokens},
                    {"share", number(s.share)}});
  }
  return list;
}

std::vector<CalibrationSource> sources_of(const Json& list) {
  std::vector<CalibrationSource> sources;
  for (const Json& j : list) {
    sources.push_back({j.at("name").get<std::string>(), size_of(j, "files"), size_of(j, "texts"), size_of(j, "tokens"),
                       size_of(j, "rows"), size_of(j, "used_tokens"), number_of(j.at("share"))});
  }
  return sources;
}

OrderedJson stages_json(const std::vector<StageTime>& stages) {
  OrderedJson list = OrderedJson::array();
  for (const StageTime& s : stages) {
    list.push_back({{"stage", s.stage},
                    {"seconds", number(s.seconds)},
                    {"product_seconds", number(s.product_seconds)},
                    {"product_flops", number(s.product_flops)},
                    {"launches", s.launches},
                    {"upload_bytes", s.upload_bytes},
                    {"download_bytes", s.download_bytes},
                    {"waits", s.waits},
                    {"wait_seconds", number(s.wait_seconds)}});
  }
  return list;
}

std::vector<StageTime> stages_of(const Json& list) {
  std::vector<StageTime> stages;
  for (const Json& j : list) {
    StageTime s;
    s.stage = j.at("stage").get<std::string>();
    s.seconds = number_of(j.at("seconds"));
    s.product_seconds = number_of(j.at("product_seconds"));
    s.product_flops = number_of(j.at("product_flops"));
    s.launches = size_of(j, "launches");
    s.upload_bytes = size_of(j, "upload_bytes");
    s.download_bytes = size_of(j, "download_bytes");
    s.waits = size_of(j, "waits");
    s.wait_seconds = number_of(j.at("wait_seconds"));
    stages.push_back(std::move(s));
  }
  return stages;
}

void read(const Json& j, Report& r) {
  const auto text = [&](const char* key) { return j.at(key).get<std::string>(); };
  r.version = text("version");
  r.model = text("model");
  r.architecture = text("architecture");
  r.fingerprint = text("fingerprint");
  r.command = text("command");
  r.layers = size_of(j, "layers");
  r.hidden = size_of(j, "hidden");
  r.vocabulary = size_of(j, "vocabulary");
  r.parameters = size_of(j, "parameters");
  r.original_bytes = size_of(j, "original_bytes");
  r.bytes = size_of(j, "bytes");
  r.bpw_target = number_of(j.at("bpw_target"));
  r.bpw_linears = number_of(j.at("bpw_linears"));
  r.bpw_head = number_of(j.at("bpw_head"));
  r.predicted_kld = number_of(j.at("predicted_kld"));
  r.measured = measured_of(j.at("measured"));
  r.held_out = j.at("held_out").get<bool>();
  r.linears = linears_of(j.at("linears"));
  r.trace = trace_of(j.at("by_layers"));
  r.frontier = points_of(j.at("frontier"));
  r.uniform = points_of(j.at("uniform"));
  r.effort = text("effort");
  r.device = text("device");
  r.arithmetic = text("arithmetic");
  r.threads = size_of(j, "threads");
  r.seed = size_of(j, "seed");
  const Json& c = j.at("calibration");
  r.calibration = c.at("text").get<std::string>();
  r.text_fingerprint = c.at("fingerprint").get<std::string>();
  r.rows = size_of(c, "rows");
  r.length = size_of(c, "length");
  r.sources = sources_of(c.at("sources"));
  r.warnings = j.at("warnings").get<std::vector<std::string>>();
  r.stages = stages_of(j.at("stages"));
  r.seconds = number_of(j.at("seconds"));
  r.peak_memory = size_of(j, "peak_memory");
}

}  // namespace

OrderedJson to_json(const Report& r) {
  return {{"format", kFormat},
          {"format_version", kFormatVersion},
          {"version", r.version},
          {"model", r.model},
          {"architecture", r.architecture},
          {"fingerprint", r.fingerprint},
          {"command", r.command},
          {"layers", r.layers},
          {"hidden", r.hidden},
          {"vocabulary", r.vocabulary},
          {"parameters", r.parameters},
          {"original_bytes", r.original_bytes},
          {"bytes", r.bytes},
          {"bpw_target", number(r.bpw_target)},
          {"bpw_linears", number(r.bpw_linears)},
          {"bpw_head", number(r.bpw_head)},
          {"predicted_kld", number(r.predicted_kld)},
          {"measured", measured_json(r.measured)},
          {"held_out", r.held_out},
          {"effort", r.effort},
          {"device", r.device},
          {"arithmetic", r.arithmetic},
          {"threads", r.threads},
          {"seed", r.seed},
          {"calibration",
           {{"text", r.calibration},
            {"fingerprint", r.text_fingerprint},
            {"rows", r.rows},
            {"length", r.length},
            {"sources", sources_json(r.sources)}}},
          {"warnings", r.warnings},
          {"linears", linears_json(r.linears)},
          {"by_layers", trace_json(r.trace)},
          {"frontier", points_json(r.frontier)},
          {"uniform", points_json(r.uniform)},
          {"seconds", number(r.seconds)},
          {"peak_memory", r.peak_memory},
          {"stages", stages_json(r.stages)}};
}

Report parse_report(const Json& json, const std::string& name) {
  const auto is = [&](const char* key, const Json& value) { return json.contains(key) && json.at(key) == value; };
  if (!json.is_object() || !is("format", kFormat)) {
    throw Error(ErrorCode::kModel, fmt::format("{}: it is no report of Bitwright", name),
                "give a directory that `bitwright quantize` wrote");
  }
  if (!is("format_version", kFormatVersion)) {
    throw Error(ErrorCode::kModel,
                fmt::format("{}: format_version {}, this program reads {}", name,
                            json.value("format_version", Json()).dump(), kFormatVersion),
                "use the version of Bitwright that wrote it");
  }
  Report r;
  try {
    read(json, r);
  } catch (const Json::exception& e) {
    throw Error(ErrorCode::kModel, fmt::format("{}: damaged: {}", name, e.what()), "quantize again");
  } catch (const Error& e) {
    throw Error(ErrorCode::kModel, fmt::format("{}: damaged: {}", name, e.what()), "quantize again");
  }
  return r;
}

}  // namespace bw::report
