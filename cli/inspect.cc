#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"

namespace bw::cli {
namespace {

struct State {
  std::filesystem::path model;
  bool json = false;
};

void print(const InspectResult& r) {
  fmt::print("{}  {} layers, hidden {}, vocabulary {}, {:.1f}M parameters{}\n", r.architecture, r.layers, r.hidden,
             r.vocabulary, static_cast<double>(r.parameters) / 1e6, r.tied ? ", head tied to the embedding" : "");
  fmt::print(
      "{:.1f} MB of tensors, {:.1f} MB in all; bits per weight: linears {:.4f}, head {:.4f}, all tensors {:.4f}\n\n",
      static_cast<double>(r.tensor_bytes) / 1e6, static_cast<double>(r.directory_bytes) / 1e6, r.bpw_linears,
      r.bpw_head, r.bpw_all);
  size_t width = 6;
  for (const LinearReport& l : r.linears) width = std::max(width, l.key.size());
  fmt::print("{:<{}}  {:>6}  {:>6}  {:>7}  layout\n", "linear", width, "in", "out", "bpw");
  for (const LinearReport& l : r.linears)
    fmt::print("{:<{}}  {:>6}  {:>6}  {:>7.4f}  {}\n", l.key, width, l.in, l.out, l.bpw, l.layout);
  for (const std::string& warning : r.warnings) fmt::print("warning: {}\n", warning);
}

void print_json(const InspectResult& r) {
  nlohmann::ordered_json linears = nlohmann::ordered_json::array();
  for (const LinearReport& l : r.linears) {
    linears.push_back({{"key", l.key}, {"in", l.in}, {"out", l.out}, {"bpw", l.bpw}, {"layout", l.layout}});
  }
  const nlohmann::ordered_json j = {{"architecture", r.architecture},
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
                                    {"bpw_all", r.bpw_all},
                                    {"linears", linears},
                                    {"warnings", r.warnings}};
  fmt::print("{}\n", j.dump(1));
}

std::string run(State& s) {
  const InspectResult r = inspect(s.model);
  s.json ? print_json(r) : print(r);
  return "done: inspected " + s.model.string();
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto s = std::make_shared<State>();
  CLI::App* c = app.add_subcommand("inspect", "Show a model's linears: shapes, layouts, bits per weight");
  c->footer("Examples:\n  bitwright inspect OUT\n  bitwright inspect MODEL --json");
  c->add_option("model", s->model, "Model directory, original or EXL2")->required()->type_name("DIR");
  c->add_flag("--json", s->json, "As JSON");
  c->callback([s, &action] { action = [s] { return run(*s); }; });
}

}  // namespace bw::cli
