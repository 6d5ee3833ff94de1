#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"

namespace bw::cli {
namespace {

struct State {
  PlanOptions options;
  CommonOptions common;
  CalibrationArguments calibration;
  std::vector<std::string> bpw;
  std::string size, head_bits = std::to_string(kDefaultHeadBits);
  bool json = false;
};

constexpr size_t kListed = 20;  // findings that a person reads

bool is_error(const Finding& f) { return f.severity == Finding::Severity::kError; }

std::string text_of(const Finding& f) { return (f.where.empty() ? "" : f.where + ": ") + f.what; }

void row(const char* name, const std::string& text) { fmt::print("{:<13}{}\n", name, text); }

void print_findings(const PlanResult& r) {
  const auto errors = static_cast<size_t>(std::count_if(r.findings.begin(), r.findings.end(), is_error));
  row("findings", r.findings.empty()
                      ? "none"
                      : fmt::format("{} error{}, {} warning{}", errors, errors == 1 ? "" : "s",
                                    r.findings.size() - errors, r.findings.size() - errors == 1 ? "" : "s"));
  for (size_t i = 0; i < std::min(r.findings.size(), kListed); ++i) {
    const Finding& f = r.findings[i];
    fmt::print("  {:<9}{}\n", is_error(f) ? "error" : "warning", text_of(f));
    if (!f.advice.empty()) fmt::print("           -> {}\n", f.advice);
  }
  if (r.findings.size() > kListed) fmt::print("  and {} more: see --json\n", r.findings.size() - kListed);
}

void print_needs(const PlanResult& r, const PlanOptions& o) {
  row("calibration", fmt::format("{} rows of {} tokens, {}", o.calibration.rows, o.calibration.length,
                                 o.calibration.files.empty() ? "written by the model itself" : "from text"));
  row("memory", fmt::format("about {} of {}, and up to {} of mapped files where there is room",
                            format_bytes(r.memory_bytes), format_bytes(r.memory_there), format_bytes(r.mapped_bytes)));
  for (const StageNeed& stage : r.stages) fmt::print("  {:<22}{:>10}\n", stage.stage, format_bytes(stage.memory_bytes));
  if (r.device_memory_bytes > 0) row("device", fmt::format("about {} of memory", format_bytes(r.device_memory_bytes)));
  row("disk", fmt::format("up to {} while it runs{}", format_bytes(r.disk_bytes),
                          o.output.empty() ? "" : fmt::format(", {} are free", format_bytes(r.disk_there))));
}

void print(const PlanResult& r, const PlanOptions& o) {
  row("model", o.model.string());
  if (r.checked) {
    row("", fmt::format("{}, {} layers, hidden {}, vocabulary {}, {:.1f}M parameters, {}{}", r.architecture, r.layers,
                        r.hidden, r.vocabulary, static_cast<double>(r.parameters) / 1e6, format_bytes(r.tensor_bytes),
                        r.tied ? ", head tied to the embedding" : ""));
    // Rounded inwards: what is shown can be asked for.
    row("reach", fmt::format("--bpw {:.3f} to {:.3f}, --size {} to {}{}", std::ceil(r.smallest_bpw * 1000) / 1000,
                             std::floor(r.largest_bpw * 1000) / 1000, format_bytes(r.smallest_bytes),
                             format_bytes(r.largest_bytes),
                             r.plain_share > 0
                                 ? fmt::format("; {:.0f} % of the linears' weights stay in f16", 100 * r.plain_share)
                                 : ""));
    for (const TargetPlan& t : r.targets) {
      row("target", t.bpw > 0 ? fmt::format("{} bits per weight: {} at most", t.bpw, format_bytes(t.bytes))
                              : fmt::format("{} bytes ({})", t.bytes, format_bytes(t.bytes)));
    }
    print_needs(r, o);
  }
  print_findings(r);
}

nlohmann::ordered_json to_json(const PlanResult& r) {
  nlohmann::ordered_json findings = nlohmann::ordered_json::array();
  for (const Finding& f : r.findings) {
    findings.push_back(
        {{"severity", is_error(f) ? "error" : "warning"}, {"where", f.where}, {"what", f.what}, {"advice", f.advice}});
  }
  nlohmann::ordered_json j = {{"findings", findings}, {"checked", r.checked}};
  if (!r.checked) return j;
  nlohmann::ordered_json targets = nlohmann::ordered_json::array(), stages = nlohmann::ordered_json::object();
  for (const TargetPlan& t : r.targets) targets.push_back({{"bpw", t.bpw}, {"bytes", t.bytes}});
  for (const StageNeed& stage : r.stages) stages[stage.stage] = stage.memory_bytes;
  j.update({{"architecture", r.architecture},
            {"layers", r.layers},
            {"hidden", r.hidden},
            {"vocabulary", r.vocabulary},
            {"parameters", r.parameters},
            {"tensor_bytes", r.tensor_bytes},
            {"tied", r.tied},
            {"smallest_bpw", r.smallest_bpw},
            {"largest_bpw", r.largest_bpw},
            {"smallest_bytes", r.smallest_bytes},
            {"largest_bytes", r.largest_bytes},
            {"plain_share", r.plain_share},
            {"targets", targets},
            {"tokens", r.tokens},
            {"memory_bytes", r.memory_bytes},
            {"memory_by_stage", stages},
            {"memory_there", r.memory_there},
            {"mapped_bytes", r.mapped_bytes},
            {"device_memory_bytes", r.device_memory_bytes},
            {"disk_bytes", r.disk_bytes},
            {"disk_there", r.disk_there}});
  return j;
}

std::string run(State& s) {
  PlanOptions& o = s.options;
  o.bpw = parse_bpw(s.bpw);
  if (!s.size.empty()) o.size = parse_bytes(s.size, "--size");
  o.head_bits = parse_head_bits(s.head_bits);
  o.engine = engine_options(s.common);
  o.calibration = calibration_options(s.calibration);
  const PlanResult r = plan(o);
  if (s.json) {
    fmt::print("{}\n", to_json(r).dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    print(r, o);
  }
  if (!r.has_errors()) return "done: nothing stands against it";
  const auto errors = std::count_if(r.findings.begin(), r.findings.end(), is_error);
  const Finding& first = r.findings.front();
  throw Error(first.code, fmt::format("{}: {}{}", o.model.string(), text_of(first),
                                      errors > 1 ? fmt::format(" (the first of {} errors)", errors) : ""));
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto s = std::make_shared<State>();
  CLI::App* c = app.add_subcommand("plan", "Check a model, and say what a job would give and need, without doing it");
  c->footer("Examples:\n  bitwright plan MODEL\n  bitwright plan MODEL -o OUT --bpw 4.0 --calib text.txt");
  c->add_option("model", s->options.model, "Hugging Face model directory")->required()->type_name("DIR");
  c->add_option("-o,--output", s->options.output, "Output directory that is meant, to check its place and disk")
      ->type_name("DIR");
  c->add_option("--bpw", s->bpw, "Bits per weight as of quantize; without a target, measuring is planned")
      ->allow_extra_args(false)
      ->type_name("BPW[,BPW...]");
  c->add_option("--size", s->size, "Size of the whole output instead, such as 3.2GB")
      ->excludes("--bpw")
      ->type_name("SIZE");
  c->add_option("--head-bits", s->head_bits, "Bits of the head as of quantize")
      ->capture_default_str()
      ->type_name("BITS");
  c->add_flag("--overwrite", s->options.overwrite, "The output may replace one that Bitwright wrote");
  c->add_flag("--json", s->json, "As JSON");
  add_calibration_options(*c, s->calibration);
  add_common_options(*c, s->common);
  c->callback([s, &action] { action = [s] { return run(*s); }; });
}

}  // namespace bw::cli
