// The public functions of bitwright.h: options checked, stages in order.
#include "bitwright/bitwright.h"

#include <algorithm>
#include <chrono>
#include <new>

#include <fmt/format.h>

#include "bitwright/units.h"
#include "pipeline/compile.h"
#include "pipeline/evaluate.h"
#include "pipeline/generate.h"
#include "pipeline/inspect.h"
#include "pipeline/measure.h"
#include "pipeline/output_plan.h"
#include "pipeline/quantize.h"

namespace bw {
namespace {

using namespace pipeline;
using Clock = std::chrono::steady_clock;

void check_head_bits(int bits) {
  const int known[] = {2, 3, 4, 5, 6, 8, 16};
  if (std::find(std::begin(known), std::end(known), bits) == std::end(known)) {
    throw Error(ErrorCode::kUsage, fmt::format("--head-bits {}: the head can have 2, 3, 4, 5, 6, 8 or 16 bits", bits));
  }
}

// Only Errors leave the library: what the file system and the allocator throw is translated.
template <typename Call>
auto guarded(const Call& call) {
  try {
    return call();
  } catch (const std::filesystem::filesystem_error& e) {
    throw Error(ErrorCode::kIo, fmt::format("{}: {}", e.path1().string(), e.code().message()));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kIo, "out of memory",
                "give fewer or shorter calibration rows, or run on a machine with more memory");
  }
}

void check_targets(const QuantizeOptions& o) {
  if (o.bpw.empty() == !o.size.has_value()) {
    throw Error(ErrorCode::kUsage, o.size ? "--bpw and --size are both given" : "no target is given",
                "give either --bpw (bits per weight of the linears) or --size (bytes of the whole output)");
  }
  for (size_t i = 0; i < o.bpw.size(); ++i) {
    if (std::count(o.bpw.begin(), o.bpw.end(), o.bpw[i]) > 1) {
      throw Error(ErrorCode::kUsage, fmt::format("--bpw {} is given twice", o.bpw[i]));
    }
  }
  if (o.output.empty()) throw Error(ErrorCode::kUsage, "no output directory is given", "give -o DIRECTORY");
}

// OUTPUT for a single target, OUTPUT-<bpw>bpw for each of several.
std::filesystem::path output_of(const QuantizeOptions& o, double bpw) {
  if (o.bpw.size() <= 1) return o.output;
  std::filesystem::path path = o.output.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  path += fmt::format("-{}bpw", bpw);
  return path;
}

void tell_warnings(Run& run, const model::ModelDir& dir) {
  for (const std::string& warning : dir.warnings()) run.reporter.warn("plan", warning);
}

QuantizeResult write_output(Run& run, const model::ModelDir& dir, const calib::Rows& rows, const OutputPlan& plan,
                            const std::filesystem::path& output, bool overwrite) {
  const auto start = Clock::now();
  run.reporter.note("allocate",
                    fmt::format("{}: {:.4f} bits per weight, head {:.3f}, {} bytes ({}) planned", output.string(),
                                plan.bpw_linears, plan.bpw_head, plan.bytes, format_bytes(plan.bytes)));
  OutputBuilder builder(dir, output, plan, overwrite);
  quantize_layers(run, dir, rows, plan, builder.layers_dir());
  QuantizeResult r;
  r.output = output;
  r.bpw_linears = plan.bpw_linears;
  r.bpw_head = plan.bpw_head;
  r.planned_bytes = plan.bytes;
  {
    const StageClock::Span span(run.clock, "compile");
    r.written_bytes = builder.finish(run);
  }
  r.stages = run.clock.times();
  r.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return r;
}

MeasureResult run_measure(const MeasureOptions& options) {
  const model::ModelDir dir(options.model);
  if (options.output.empty()) throw Error(ErrorCode::kUsage, "no output file is given", "give -o FILE.json");
  Run run(options.engine);
  tell_warnings(run, dir);
  const calib::Rows rows = calibration_rows(run, dir, options.calibration);
  const Measurement m = measure_model(run, dir, rows);
  save_measurement(m, options.output);
  MeasureResult r;
  r.linears = m.linears.size();
  for (const LinearMeasurement& linear : m.linears) r.candidates += linear.candidates.size();
  r.tokens = rows.ids.size();
  const Reach reach = reach_of(m);
  r.smallest_bpw = reach.smallest_bpw();
  r.largest_bpw = reach.largest_bpw();
  r.stages = run.clock.times();
  return r;
}

std::vector<QuantizeResult> run_quantize(const QuantizeOptions& options) {
  // Everything that can be refused is refused before the first expensive step.
  check_targets(options);
  check_head_bits(options.head_bits);
  const model::ModelDir dir(options.model);
  for (const double bpw : options.bpw) {
    check_bpw(bpw, reach_of(dir));
    check_output_path(options.model, output_of(options, bpw), options.overwrite);
  }
  if (options.size) check_output_path(options.model, options.output, options.overwrite);
  check_half_range(dir);
  Run run(options.engine);
  tell_warnings(run, dir);
  std::optional<Measurement> measurement;
  if (options.measurement) measurement = load_measurement(*options.measurement, fingerprint(dir));
  const calib::Rows rows = calibration_rows(run, dir, options.calibration);
  if (!measurement) measurement = measure_model(run, dir, rows);

  const OutputOptions output{options.head_bits, options.shard_bytes, 0};
  std::vector<QuantizeResult> results;
  if (options.size) {
    const OutputPlan plan = plan_for_size(dir, *measurement, *options.size, output);
    results.push_back(write_output(run, dir, rows, plan, options.output, options.overwrite));
  }
  for (const double bpw : options.bpw) {
    const OutputPlan plan = plan_for_bpw(dir, *measurement, bpw, output);
    results.push_back(write_output(run, dir, rows, plan, output_of(options, bpw), options.overwrite));
    results.back().bpw_target = bpw;
  }
  return results;
}

EvaluateResult run_evaluate(const EvaluateOptions& options) {
  EngineOptions engine = options.engine;
  if (engine.arithmetic == Arithmetic::kAuto) engine.arithmetic = Arithmetic::kF32;
  Run run(engine);
  EvaluateResult r = evaluate_model(run, options);
  r.stages = run.clock.times();
  return r;
}

GenerateResult run_generate(const GenerateOptions& options) {
  Run run(options.engine);
  return generate_text(run, options);
}

}  // namespace

std::string_view version() { return BW_VERSION; }

MeasureResult measure(const MeasureOptions& options) {
  return guarded([&] { return run_measure(options); });
}

std::vector<QuantizeResult> quantize(const QuantizeOptions& options) {
  return guarded([&] { return run_quantize(options); });
}

EvaluateResult evaluate(const EvaluateOptions& options) {
  return guarded([&] { return run_evaluate(options); });
}

GenerateResult generate(const GenerateOptions& options) {
  return guarded([&] { return run_generate(options); });
}

InspectResult inspect(const std::filesystem::path& model) {
  return guarded([&] { return inspect_model(model); });
}

}  // namespace bw
