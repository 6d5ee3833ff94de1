// The public functions of bitwright.h: options checked, stages in order.
#include "bitwright/bitwright.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>

#include <fmt/format.h>

#include "backend/devices.h"
#include "bitwright/units.h"
#include "io/file_write.h"
#include "pipeline/compile.h"
#include "pipeline/evaluate.h"
#include "pipeline/generate.h"
#include "pipeline/inspect.h"
#include "pipeline/measure.h"
#include "pipeline/output_file.h"
#include "pipeline/output_plan.h"
#include "pipeline/quantize.h"

namespace bw {
namespace {

using namespace pipeline;
using Clock = std::chrono::steady_clock;

void check_head_bits(int bits) {
  const int known[] = {2, 3, 4, 5, 6, 8, 16};
  if (std::find(std::begin(known), std::end(known), bits) == std::end(known)) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--head-bits {}: the head can have 2, 3, 4, 5, 6, 8 or 16 bits, or auto", bits));
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

QuantizeResult write_output(Run& run, const model::ModelDir& dir, const calib::Rows& rows, const TokenGains& gains,
                            const OutputPlan& plan, Effort effort, OutputBuilder& builder, Clock::time_point start) {
  run.reporter.note("allocate", fmt::format("{}: {:.4f} bits per weight, head {:.3f}, {} bytes ({}) planned",
                                            builder.output().string(), plan.bpw_linears, plan.bpw_head, plan.bytes,
                                            format_bytes(plan.bytes)));
  check_space(builder.output(), plan.bytes);
  quantize_layers(run, dir, rows, gains, plan, effort, builder.layers_dir());
  QuantizeResult r;
  r.output = builder.output();
  r.bpw_linears = plan.bpw_linears;
  r.bpw_head = plan.bpw_head;
  r.predicted_kld = plan.predicted_kld;
  r.planned_bytes = plan.bytes;
  {
    const StageClock::Span span(run.clock, "compile");
    r.written_bytes = builder.finish(run, plan);
  }
  r.stages = run.clock.times();
  r.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return r;
}

// What can be refused without any work on weights.
void check_before_work(const model::ModelDir& dir, const QuantizeOptions& o, const OutputOptions& output) {
  const Reach reach = reach_of(shape_measurement(dir));
  for (const double bpw : o.bpw) check_bpw(bpw, reach);
  if (o.size) check_size(dir, *o.size, output);
  uint64_t bytes = o.size.value_or(0);
  for (const double bpw : o.bpw) bytes += static_cast<uint64_t>(bpw * static_cast<double>(reach.weights) / 8);
  check_space(o.output, bytes);
  check_half_range(dir);
}

// One builder for each target, in the order of the targets.
std::vector<std::unique_ptr<OutputBuilder>> make_builders(const model::ModelDir& dir, const QuantizeOptions& o) {
  std::vector<std::unique_ptr<OutputBuilder>> builders;
  for (size_t i = 0; i < std::max<size_t>(1, o.bpw.size()); ++i) {
    const std::filesystem::path output = output_of(o, o.bpw.empty() ? 0 : o.bpw[i]);
    builders.push_back(std::make_unique<OutputBuilder>(dir, output, o.overwrite));
  }
  return builders;
}

// Refuses to write a measurement over something else.
void check_measurement_path(const std::filesystem::path& model, const std::filesystem::path& file) {
  if (file.empty()) throw Error(ErrorCode::kUsage, "no output file is given", "give -o FILE.json");
  if (is_inside(model, file)) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: it lies inside the model directory", file.string()),
                "choose another place for -o; the input is never written to");
  }
  if (std::filesystem::is_regular_file(file) && !is_measurement(file)) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: it exists and is not a measurement", file.string()),
                "it is left as it is; choose another -o");
  }
}

// `others` and the files of calibration.
std::vector<std::filesystem::path> files_of(const CalibrationOptions& calibration,
                                            std::vector<std::filesystem::path> others) {
  others.insert(others.end(), calibration.files.begin(), calibration.files.end());
  return others;
}

// Refuses a trace file that would overwrite one of `others`, or that cannot be written at the end.
void check_trace(const EngineOptions& engine, const std::vector<std::filesystem::path>& others) {
  if (engine.trace.empty()) return;
  check_output_file(engine.trace, "--trace", others);
  if (!std::filesystem::exists(engine.trace) || std::filesystem::is_regular_file(engine.trace)) {
    const io::AtomicFile probe(engine.trace);
  }
}

// Runs `body`; then, however it ended, the trace is written.
template <typename Body>
auto traced(Run& run, const EngineOptions& engine, const Body& body) {
  auto result = [&] {
    try {
      return body();
    } catch (...) {
      try {
        write_trace(run, engine);
      } catch (const Error&) {
        // The first failure is the one to tell.
      }
      throw;
    }
  }();
  run.device->wait_all("the end");
  try {
    write_trace(run, engine);
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{}; all else is complete", e.what()));
  }
  return result;
}

// Where files beside `file` go; a device or a pipe has none of its own.
std::filesystem::path directory_of(const std::filesystem::path& file) {
  const bool in_place = std::filesystem::exists(file) && !std::filesystem::is_regular_file(file);
  return in_place ? std::filesystem::temp_directory_path() : std::filesystem::absolute(file).parent_path();
}

MeasureResult run_measure(const MeasureOptions& options) {
  const model::ModelDir dir(options.model);
  check_measurement_path(options.model, options.output);
  if (!std::filesystem::exists(options.output) || std::filesystem::is_regular_file(options.output)) {
    const io::AtomicFile probe(options.output);  // shows now whether the file can be written at the end
  }
  check_trace(options.engine, files_of(options.calibration, {options.model, options.output}));
  Run run(options.engine);
  return traced(run, options.engine, [&] {
    tell_warnings(run, dir);
    const calib::Rows rows = calibration_rows(run, dir, options.calibration);
    const Measurement m =
        measure_model(run, dir, rows, options.calibration.seed, directory_of(options.output)).measurement;
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
  });
}

// All targets, one after the other, from one measurement.
std::vector<QuantizeResult> write_outputs(Run& run, const model::ModelDir& dir, const QuantizeOptions& options,
                                          const OutputOptions& output, std::optional<Measurement> measurement,
                                          const std::vector<std::unique_ptr<OutputBuilder>>& builders,
                                          Clock::time_point start) {
  tell_warnings(run, dir);
  const calib::Rows rows = calibration_rows(run, dir, options.calibration);
  TokenGains gains;
  const std::filesystem::path scratch = builders[0]->layers_dir();
  if (measurement) {
    gains = find_gradients(run, dir, rows, options.calibration.seed, scratch, nullptr);
  } else {
    Measured measured = measure_model(run, dir, rows, options.calibration.seed, scratch);
    measurement = std::move(measured.measurement);
    gains = std::move(measured.gains);
  }
  // What the output's config tells of calibration are the rows that it is quantized with.
  measurement->source = rows.source;
  measurement->rows = rows.count();
  measurement->length = rows.length;
  std::vector<QuantizeResult> results;
  for (size_t i = 0; i < builders.size(); ++i) {
    const OutputPlan plan = options.size ? plan_for_size(dir, *measurement, *options.size, output)
                                         : plan_for_bpw(dir, *measurement, options.bpw[i], output);
    results.push_back(write_output(run, dir, rows, gains, plan, options.effort, *builders[i], start));
    if (!options.size) results.back().bpw_target = options.bpw[i];
  }
  return results;
}

std::vector<QuantizeResult> run_quantize(const QuantizeOptions& options) {
  const auto start = Clock::now();
  // Everything that can be refused is refused before the first expensive step.
  check_targets(options);
  if (options.head_bits) check_head_bits(*options.head_bits);
  const model::ModelDir dir(options.model);
  const OutputOptions output{options.head_bits, options.shard_bytes, 0};
  check_before_work(dir, options, output);
  std::optional<Measurement> measurement;
  if (options.measurement) measurement = load_measurement(*options.measurement, dir);
  std::vector<std::filesystem::path> others = {options.model, options.measurement.value_or("")};
  for (size_t i = 0; i < std::max<size_t>(1, options.bpw.size()); ++i) {
    others.push_back(output_of(options, options.bpw.empty() ? 0 : options.bpw[i]));
  }
  check_trace(options.engine, files_of(options.calibration, std::move(others)));
  const std::vector<std::unique_ptr<OutputBuilder>> builders = make_builders(dir, options);
  Run run(options.engine);
  return traced(run, options.engine,
                [&] { return write_outputs(run, dir, options, output, std::move(measurement), builders, start); });
}

EvaluateResult run_evaluate(const EvaluateOptions& options) {
  EngineOptions engine = options.engine;
  if (engine.arithmetic == Arithmetic::kAuto) engine.arithmetic = Arithmetic::kF32;
  check_trace(engine, {options.model, options.reference.value_or(""), options.text});
  Run run(engine);
  return traced(run, engine, [&] {
    EvaluateResult r = evaluate_model(run, options);
    r.stages = run.clock.times();
    return r;
  });
}

GenerateResult run_generate(const GenerateOptions& options) {
  check_trace(options.engine, {options.model});
  Run run(options.engine);
  return traced(run, options.engine, [&] {
    GenerateResult r = generate_text(run, options);
    r.stages = run.clock.times();
    return r;
  });
}

}  // namespace

std::string_view version() { return BW_VERSION; }

std::vector<std::string> device_names() { return backend::device_names(); }

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
