#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"

namespace bw::cli {
namespace {

struct State {
  CalibrateOptions options;
  CommonOptions common;
  CalibrationArguments calibration;
  bool json = false;
};

void print(const CalibrateResult& r) {
  fmt::print("{:>8} {:>8} {:>12} {:>8} {:>12} {:>8}  source\n", "files", "texts", "tokens", "rows", "used", "share");
  for (const CalibrationSource& s : r.sources) {
    fmt::print("{:>8} {:>8} {:>12} {:>8} {:>12} {:>6.1f} %  {}\n", s.files, s.texts, s.tokens, s.rows, s.used_tokens,
               100 * s.share, s.name);
  }
  fmt::print("{} rows of {} tokens\n", r.rows, r.length);
}

void print_json(const CalibrateResult& r) {
  nlohmann::ordered_json sources = nlohmann::ordered_json::array();
  for (const CalibrationSource& s : r.sources) {
    sources.push_back({{"name", s.name},
                       {"files", s.files},
                       {"texts", s.texts},
                       {"tokens", s.tokens},
                       {"rows", s.rows},
                       {"used_tokens", s.used_tokens},
                       {"share", s.share}});
  }
  const nlohmann::ordered_json j = {{"rows", r.rows}, {"length", r.length}, {"sources", sources}};
  fmt::print("{}\n", j.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

std::string run(State& s) {
  s.options.engine = engine_options(s.common);
  s.options.calibration = calibration_options(s.calibration);
  const CalibrateResult r = calibrate(s.options);
  s.json ? print_json(r) : print(r);
  return s.options.output.empty() ? fmt::format("done: {} rows", r.rows)
                                  : fmt::format("done: wrote {}", s.options.output.string());
}

}  // namespace

void add_calib(CLI::App& app, Action& action) {
  auto s = std::make_shared<State>();
  CLI::App* c = app.add_subcommand("calib", "Show what calibration rows are made of, and keep them as a file");
  c->footer(
      "Examples:\n  bitwright calib MODEL --calib books/ --calib chats.jsonl:2\n"
      "  bitwright calib MODEL --calib books/:3 --calib 'code/*.txt:1' -o rows.jsonl\n"
      "  bitwright quantize MODEL -o OUT --bpw 4.0 --calib rows.jsonl");
  c->add_option("model", s->options.model, "Hugging Face model directory")->required()->type_name("DIR");
  c->add_option("-o,--output", s->options.output, "File of rows to write (.jsonl), to be given as --calib later")
      ->type_name("FILE");
  c->add_flag("--json", s->json, "As JSON");
  add_calibration_options(*c, s->calibration);
  add_common_options(*c, s->common);
  c->callback([s, &action] { action = [s] { return run(*s); }; });
}

}  // namespace bw::cli
