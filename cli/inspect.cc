#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "inspect_tables.h"

namespace bw::cli {
namespace {

using Json = nlohmann::ordered_json;

struct State {
  std::filesystem::path path;
  bool json = false, all = false;
};

Json json_of(const PartReport& p) {
  return {{"key", p.key},       {"layer", p.layer ? Json(*p.layer) : Json()},
          {"module", p.module}, {"in", p.in},
          {"out", p.out},       {"bpw", p.bpw},
          {"bytes", p.bytes},   {"layout", p.layout}};
}

Json json_of(const std::vector<PartReport>& parts) {
  Json list = Json::array();
  for (const PartReport& p : parts) list.push_back(json_of(p));
  return list;
}

void print(const InspectResult& r, bool all) {
  fmt::print("{}  {} layers, hidden {}, vocabulary {}, {:.1f}M parameters{}\n", r.architecture, r.layers, r.hidden,
             r.vocabulary, static_cast<double>(r.parameters) / 1e6, r.tied ? ", head tied to the embedding" : "");
  fmt::print("{} of tensors, {} in all\n", format_bytes(r.tensor_bytes), format_bytes(r.directory_bytes));
  fmt::print("bits per weight: linears {:.4f}, head {:.4f}, linears and head {:.4f}, with embedding and norms {:.4f}\n",
             r.bpw_linears, r.bpw_head, r.bpw_linears_and_head, r.bpw_all);
  std::vector<PartReport> parts = r.linears;
  parts.push_back(r.embedding);
  print_by_module(parts);
  print_by_layer(parts);
  if (all) print_each(parts);
  for (const std::string& warning : r.warnings) fmt::print("warning: {}\n", warning);
}

Json to_json(const InspectResult& r) {
  return {{"kind", "model"},
          {"architecture", r.architecture},
          {"layers", r.layers},
          {"hidden", r.hidden},
          {"vocabulary", r.vocabulary},
          {"parameters", r.parameters},
          {"tensor_bytes", r.tensor_bytes},
          {"directory_bytes", r.directory_bytes},
          {"quantized", r.quantized},
          {"tied", r.tied},
          {"bpw_linears", r.bpw_linears},
          {"bpw_head", r.bpw_head},
          {"bpw_linears_and_head", r.bpw_linears_and_head},
          {"bpw_all", r.bpw_all},
          {"linears", json_of(r.linears)},
          {"embedding", json_of(r.embedding)},
          {"warnings", r.warnings}};
}

void print(const FileReport& r, bool all) {
  fmt::print("{} tensors, {} in a file of {}; {:.1f}M weights, {:.4f} bits per weight\n", r.tensors,
             format_bytes(r.tensor_bytes), format_bytes(r.file_bytes), static_cast<double>(r.weights) / 1e6, r.bpw);
  for (const auto& [key, value] : r.metadata) fmt::print("metadata {}: {}\n", key, value);
  print_by_module(r.parts);
  print_by_layer(r.parts);
  if (all) print_each(r.parts);
}

Json to_json(const FileReport& r) {
  return {{"kind", "file"},         {"file_bytes", r.file_bytes}, {"tensor_bytes", r.tensor_bytes},
          {"tensors", r.tensors},   {"weights", r.weights},       {"bpw", r.bpw},
          {"metadata", r.metadata}, {"parts", json_of(r.parts)}};
}

void print(const MeasurementReport& r, bool all) {
  if (r.foreign) {
    fmt::print("a measurement of exllamav2's; prices are relative errors of whole blocks\n");
  } else {
    fmt::print("{}, calibrated on {}: {} rows of {} tokens; prices are nats per token\n", r.architecture, r.source,
               r.rows, r.length);
    fmt::print("--bpw can be {:.3f} to {:.3f}\n", r.smallest_bpw, r.largest_bpw);
  }
  print_prices(r);
  for (const MeasuredPart& p : r.parts) {
    if (!all) break;
    fmt::print("\n{}\n", p.key);
    for (const PricedLayout& l : p.layouts) {
      fmt::print("  {:>10}  {:>11.4g}  {}\n", format_bytes(l.bytes), l.price, l.layout);
    }
  }
}

Json to_json(const MeasurementReport& r) {
  Json parts = Json::array();
  for (const MeasuredPart& p : r.parts) {
    Json layouts = Json::array();
    for (const PricedLayout& l : p.layouts) {
      layouts.push_back({{"layout", l.layout}, {"bytes", l.bytes}, {"price", l.price}});
    }
    parts.push_back({{"key", p.key},
                     {"layer", p.layer ? Json(*p.layer) : Json()},
                     {"module", p.module},
                     {"in", p.in},
                     {"out", p.out},
                     {"layouts", layouts}});
  }
  return {{"kind", "measurement"},
          {"by", r.foreign ? "exllamav2" : "bitwright"},
          {"architecture", r.architecture},
          {"source", r.source},
          {"rows", r.rows},
          {"length", r.length},
          {"smallest_bpw", r.smallest_bpw},
          {"largest_bpw", r.largest_bpw},
          {"parts", parts}};
}

std::string_view name_of(JobStep::State state) {
  return state == JobStep::State::kDone ? "done" : state == JobStep::State::kBegun ? "begun" : "waiting";
}

void print(const JobReport& r, bool) {
  fmt::print("a work folder of {}\n\n{:<18}  {:<8}  {:>14}  output\n", format_bytes(r.bytes), "step", "state",
             "finished");
  for (const JobStep& s : r.steps) {
    std::string done = "-";
    if (s.total > 0) done = fmt::format("{} of {}", s.done, s.total);
    if (s.total == 0 && s.done > 0) done = std::to_string(s.done);
    fmt::print("{:<18}  {:<8}  {:>14}  {}\n", s.name, name_of(s.state), done, s.output);
  }
}

Json to_json(const JobReport& r) {
  Json steps = Json::array();
  for (const JobStep& s : r.steps) {
    steps.push_back({{"step", s.name},
                     {"state", name_of(s.state)},
                     {"done", s.done},
                     {"total", s.total > 0 ? Json(s.total) : Json()},
                     {"output", s.output}});
  }
  return {{"kind", "job"}, {"bytes", r.bytes}, {"steps", steps}};
}

std::string run(State& s) {
  const InspectReport report = inspect_path(s.path);
  std::visit(
      [&](const auto& r) {
        if (s.json) {
          fmt::print("{}\n", to_json(r).dump(1, ' ', false, Json::error_handler_t::replace));
        } else {
          print(r, s.all);
        }
      },
      report);
  return "done: inspected " + s.path.string();
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto s = std::make_shared<State>();
  CLI::App* c = app.add_subcommand(
      "inspect", "Show what is in a model, a file of tensors, a measurement or a work folder: bits, bytes, layouts");
  c->footer(
      "Examples:\n  bitwright inspect OUT\n  bitwright inspect OUT/model.safetensors --all\n"
      "  bitwright inspect measurement.json\n  bitwright inspect OUT.work\n  bitwright inspect MODEL --json");
  c->add_option("path", s->path, "Model directory, .safetensors file, measurement (.json) or work folder")
      ->required()
      ->type_name("DIR|FILE");
  c->add_flag("--all", s->all, "Also each linear or tensor with its layout, each price of a measurement");
  c->add_flag("--json", s->json, "As JSON, with all of that");
  c->callback([s, &action] { action = [s] { return run(*s); }; });
}

}  // namespace bw::cli
