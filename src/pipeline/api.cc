// The public functions of bitwright.h: options checked, stages in order.
#include "bitwright/bitwright.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>

#include <fmt/format.h>

#include "backend/devices.h"
#include "bitwright/units.h"
#include "calib/sources.h"
#include "io/file_write.h"
#include "io/text_rows.h"
#include "pipeline/calibrate.h"
#include "pipeline/chat.h"
#include "pipeline/documents.h"
#include "pipeline/evaluate.h"
#include "pipeline/generate.h"
#include "pipeline/inspect.h"
#include "pipeline/job.h"
#include "pipeline/output_file.h"
#include "pipeline/output_plan.h"
#include "pipeline/plan.h"
#include "pipeline/quantize_job.h"

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
                "give fewer or shorter calibration rows or fewer --threads, or run on a machine with more memory");
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

void tell_warnings(Run& run, const std::vector<Finding>& warnings) {
  for (const Finding& w : warnings) {
    const std::string text = (w.where.empty() ? "" : w.where + ": ") + w.what;
    run.reporter.warn("plan", w.advice.empty() ? text : text + "; " + w.advice);
  }
}

// A job as plan() knows it. `place`: where it writes.
PlanOptions plan_options(const MeasureOptions& o, const std::filesystem::path& place) {
  PlanOptions p;
  p.model = o.model;
  p.output = place;
  p.calibration = o.calibration;
  p.engine = o.engine;
  return p;
}

PlanOptions plan_options(const QuantizeOptions& o) {
  PlanOptions p;
  p.model = o.model;
  p.output = o.output;
  p.bpw = o.bpw;
  p.size = o.size;
  p.head_bits = o.head_bits;
  p.overwrite = o.overwrite;
  p.calibration = o.calibration;
  p.engine = o.engine;
  return p;
}

// Refuses to write a measurement over something else.
void check_measurement_path(const std::filesystem::path& model, const std::filesystem::path& file) {
  if (file.empty()) throw Error(ErrorCode::kUsage, "no output file is given", "give -o FILE.json");
  if (is_inside(model, file)) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: it lies inside the model directory", file.string()),
                "choose another place for -o; the input is never written to");
  }
  if (std::filesystem::is_directory(file)) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: it is a directory", file.string()), "give -o FILE.json");
  }
  if (std::filesystem::is_regular_file(file) && !is_measurement(file)) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: it exists and is not a measurement", file.string()),
                "it is left as it is; choose another -o");
  }
}

// `others` and the files and directories of calibration.
std::vector<std::filesystem::path> files_of(const CalibrationOptions& calibration,
                                            std::vector<std::filesystem::path> others) {
  others.insert(others.end(), calibration.files.begin(), calibration.files.end());
  const auto files = calib::files_of(calib::find_sources(calibration.files, calibration.weights));
  others.insert(others.end(), files.begin(), files.end());
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
  check_measurement_path(options.model, options.output);
  Run run(options.engine);
  const JobStart start = start_job(run, plan_options(options, directory_of(options.output)));
  const model::ModelDir& dir = start.dir;
  if (!std::filesystem::exists(options.output) || std::filesystem::is_regular_file(options.output)) {
    const io::AtomicFile probe(options.output);  // shows now whether the file can be written at the end
  }
  check_trace(options.engine, files_of(options.calibration, {options.model, options.output}));
  return traced(run, options.engine, [&] {
    tell_warnings(run, start.warnings);
    run.states_on_disk = start.states_on_disk;
    const std::filesystem::path work = work_path(options.work, options.model, options.output);
    JobDir job(work, {fingerprint(dir), text_fingerprint(options.calibration.files), dir.config().n_layers},
               options.work, run.reporter);
    job.begin(options.work.restart);
    run.reporter.advise_interrupted([work] { return kept_advice(work); });
    MeasureResult r;
    const Measurement m = job.keep_for_later([&] {
      const calib::Rows rows = rows_of_job(run, dir, options.calibration, job).rows;
      r.tokens = rows.ids.size();
      return measure_in_job(run, dir, rows, rows.ids.size(), options.calibration.seed, job).measurement;
    });
    save_measurement(m, options.output);
    job.remove();
    r.linears = m.linears.size();
    for (const LinearMeasurement& linear : m.linears) r.candidates += linear.candidates.size();
    const Reach reach = reach_of(m);
    r.smallest_bpw = reach.smallest_bpw();
    r.largest_bpw = reach.largest_bpw();
    r.stages = run.clock.times();
    return r;
  });
}

std::vector<QuantizeResult> run_quantize(const QuantizeOptions& options) {
  const auto start = Clock::now();
  // Everything that can be refused is refused before the first expensive step.
  check_targets(options);
  if (options.head_bits) check_head_bits(*options.head_bits);
  Run run(options.engine);
  const JobStart job = start_job(run, plan_options(options));
  const model::ModelDir& dir = job.dir;
  std::vector<std::filesystem::path> others = outputs_of(options);
  others.push_back(options.model);
  others.push_back(options.measurement.value_or(""));
  check_trace(options.engine, files_of(options.calibration, std::move(others)));
  return traced(run, options.engine, [&] {
    tell_warnings(run, job.warnings);
    run.states_on_disk = job.states_on_disk;
    return run_quantize_job(run, dir, options, start);
  });
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

// `write` gives a result with stages. `models` are what it reads.
template <typename Write>
auto run_writing(const GenerateOptions& options, const std::vector<std::filesystem::path>& models, const Write& write) {
  check_trace(options.engine, models);
  Run run(options.engine);
  return traced(run, options.engine, [&] {
    auto r = write(run);
    r.stages = run.clock.times();
    return r;
  });
}

CalibrateResult run_calibrate(const CalibrateOptions& options) {
  const std::vector<std::filesystem::path> inputs = files_of(options.calibration, {options.model});
  check_trace(options.engine, inputs);
  if (!options.output.empty()) {
    check_output_file(options.output, "--output", inputs);
    if (std::filesystem::is_regular_file(options.output) && !io::holds_rows(options.output)) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("{}: it exists and is no file of calibration rows", options.output.string()),
                  "it is left as it is; choose another -o");
    }
  }
  Run run(options.engine);
  return traced(run, options.engine, [&] { return calibrate_model(run, options); });
}

}  // namespace

std::string_view version() { return BW_VERSION; }

std::vector<std::string> device_names() { return backend::device_names(); }

PlanResult plan(const PlanOptions& options) {
  return guarded([&] {
    if (options.head_bits) check_head_bits(*options.head_bits);
    return plan_job(options);
  });
}

CalibrateResult calibrate(const CalibrateOptions& options) {
  return guarded([&] { return run_calibrate(options); });
}

std::optional<RowShape> shape_of_rows(const std::filesystem::path& file) {
  return guarded([&]() -> std::optional<RowShape> {
    if (!io::holds_rows(file)) return std::nullopt;
    const std::vector<io::TextDocument> rows = io::read_documents(file);
    return RowShape{rows.size(), rows.front().ids.size()};
  });
}

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
  return guarded(
      [&] { return run_writing(options, {options.model}, [&](Run& run) { return generate_text(run, options); }); });
}

ReportResult read_reports(const ReportOptions& options) {
  return guarded([&] { return report_models(options); });
}

GenerateAgainstResult generate_against(const GenerateOptions& options, const std::filesystem::path& other) {
  return guarded([&] {
    return run_writing(options, {options.model, other},
                       [&](Run& run) { return generate_text_against(run, options, other); });
  });
}

struct Chat::Impl {
  explicit Impl(const ChatOptions& options) : conversation(options) {}
  Conversation conversation;
};

Chat::Chat(const ChatOptions& options) {
  guarded([&] {
    check_trace(options.engine, {options.model});
    impl_ = std::make_unique<Impl>(options);
  });
}
Chat::Chat(Chat&&) noexcept = default;
Chat& Chat::operator=(Chat&&) noexcept = default;
Chat::~Chat() = default;
ChatAnswer Chat::say(std::string_view message) {
  return guarded([&] { return impl_->conversation.say(message); });
}
void Chat::reset() { impl_->conversation.reset(); }
size_t Chat::context() const { return impl_->conversation.context(); }
std::vector<StageTime> Chat::stages() const { return impl_->conversation.stages(); }

InspectResult inspect(const std::filesystem::path& model) {
  return guarded([&] { return inspect_model(model); });
}

InspectReport inspect_path(const std::filesystem::path& path) {
  return guarded([&] { return inspect_any(path); });
}

}  // namespace bw
