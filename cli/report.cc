#include <algorithm>

#include <fmt/format.h>

#include "bitwright/units.h"
#include "commands.h"

namespace bw::cli {
namespace {

struct State {
  ReportOptions options;
  std::optional<std::string> output;
  bool json = false;
};

void print(const ReportResult& r, const std::vector<std::filesystem::path>& paths) {
  size_t width = 5;
  for (const auto& path : paths) width = std::max(width, path.string().size());
  fmt::print("{:<{}}  {:>7}  {:>6}  {:>9}  {:>9}  {:>17}  {:>8}\n", "model", width, "bpw", "head", "size", "predicted",
             "measured", "top-1");
  for (size_t i = 0; i < r.models.size(); ++i) {
    const ReportFigures& m = r.models[i];
    fmt::print(
        "{:<{}}  {:>7.4f}  {:>6.3f}  {:>9}  {:>9.4f}  {:>17}  {:>8}\n", paths[i].string(), width, m.bpw_linears,
        m.bpw_head, format_bytes(m.bytes), m.predicted_kld,
        fmt::format("{:.4f} ± {:.4f}{}", m.measured.kld.value, m.measured.kld.error, m.measured.held_out ? "" : " *"),
        fmt::format("{:.1f} %", 100 * m.measured.top1.value));
  }
  const bool any_fitted =
      std::any_of(r.models.begin(), r.models.end(), [](const ReportFigures& m) { return !m.measured.held_out; });
  if (any_fitted) fmt::print("* on tokens which the model has been fitted to: other text comes out worse\n");
}

std::string run(State& s) {
  if (s.output) check_output_file(*s.output, "--output", s.options.models);
  const ReportResult r = read_reports(s.options);
  if (s.output) {
    check_writable(*s.output);
    write_text(*s.output, s.json ? r.data : r.page);
    return "done: wrote " + *s.output;
  }
  s.json ? fmt::print("{}", r.data) : print(r, s.options.models);
  return fmt::format("done: the report of {} model{}", r.models.size(), r.models.size() == 1 ? "" : "s");
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto s = std::make_shared<State>();
  CLI::App* c = app.add_subcommand("report", "Show the report of quantized models, or draw it as a page");
  c->footer(
      "Examples:\n  bitwright report OUT\n  bitwright report OUT --json\n  bitwright report OUT-3bpw OUT-4bpw -o "
      "compare.html");
  c->add_option("models", s->options.models, "Directories that `bitwright quantize` wrote")
      ->required()
      ->type_name("DIR");
  c->add_option("-o,--output", s->output, "Write the page there: one model's report, or several beside each other")
      ->type_name("FILE.html");
  c->add_flag("--json", s->json, "The data instead (docs/report.md has the schema)");
  c->callback([s, &action] { action = [s] { return run(*s); }; });
}

}  // namespace bw::cli
