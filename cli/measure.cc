#include <cmath>

#include <fmt/format.h>

#include "commands.h"

namespace bw::cli {
namespace {

struct State {
  MeasureOptions options;
  CommonOptions common;
  CalibrationArguments calibration;
};

std::string run(State& s) {
  outlive_readers();
  s.options.engine = engine_options(s.common);
  s.options.calibration = calibration_options(s.calibration);
  const MeasureResult r = measure(s.options);
  // Rounded inwards: what is shown can be asked for.
  fmt::print("{} linears, {} layouts, {} tokens\n--bpw can be {:.3f} to {:.3f}\n", r.linears, r.candidates, r.tokens,
             std::ceil(r.smallest_bpw * 1000) / 1000, std::floor(r.largest_bpw * 1000) / 1000);
  print_profile(s.common, r.stages);
  return "done: wrote " + s.options.output.string();
}

}  // namespace

void add_measure(CLI::App& app, Action& action) {
  auto s = std::make_shared<State>();
  CLI::App* c =
      app.add_subcommand("measure", "Measure what every way of storing every linear would cost; reusable for any size");
  c->footer(
      "Examples:\n  bitwright measure MODEL -o measurement.json\n  bitwright quantize MODEL -o OUT --bpw 4.0 -m "
      "measurement.json");
  c->add_option("model", s->options.model, "Hugging Face model directory")->required()->type_name("DIR");
  c->add_option("-o,--output", s->options.output, "Measurement file to write (JSON)")->required()->type_name("FILE");
  add_calibration_options(*c, s->calibration);
  add_work_options(*c, s->options.work);
  add_common_options(*c, s->common);
  c->callback([s, &action] { action = [s] { return run(*s); }; });
}

}  // namespace bw::cli
