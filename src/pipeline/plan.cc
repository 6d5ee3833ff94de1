#include "pipeline/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "bitwright/units.h"
#include "calib/self_generate.h"
#include "codec/exl2.h"
#include "io/file_write.h"
#include "io/printable.h"
#include "model/findings.h"
#include "pipeline/compile.h"
#include "pipeline/needs.h"
#include "pipeline/output_config.h"
#include "pipeline/output_place.h"
#include "pipeline/output_plan.h"

namespace bw::pipeline {
namespace {

using model::Findings;

// A head of free width has one between these.
constexpr int kSmallestHeadBits = 2, kLargestHeadBits = 8;

bool quantizes(const PlanOptions& o) { return !o.bpw.empty() || o.size.has_value(); }

bool is_error(const Finding& f) { return f.severity == Finding::Severity::kError; }

void warn(std::vector<Finding>& list, std::string where, std::string what, std::string advice = {}) {
  list.push_back({.where = std::move(where), .what = std::move(what), .advice = std::move(advice)});
}

// Tokens that the model has no embedding for. Text may never give them: then they do no harm.
void find_in_tokenizer(const model::ModelDir& dir, const tokenizer::Tokenizer& tokenizer, std::vector<Finding>& list) {
  constexpr size_t kListed = 4;
  size_t beyond = 0;
  std::string names;
  for (size_t id = dir.vocab_rows(); id < tokenizer.vocab_size(); ++id) {
    const std::optional<std::string> token = tokenizer.id_to_token(static_cast<uint32_t>(id));
    if (!token || beyond++ >= kListed) continue;
    names += fmt::format("{}'{}' ({})", names.empty() ? "" : ", ", io::printable(*token), id);
  }
  if (beyond == 0) return;
  warn(list, "tokenizer.json",
       fmt::format("{} {} beyond the {} rows of the embedding: {}{}", beyond, beyond == 1 ? "token is" : "tokens are",
                   dir.vocab_rows(), names, beyond > kListed ? ", ..." : ""),
       "calibration text that holds one is refused");
}

// Blocks whose linears cannot be stored, and the head. Returns the share of the linears' weights in such blocks.
double find_plain_blocks(const Measurement& shapes, std::vector<Finding>& list) {
  struct Cause {
    std::string first;  // linear
    std::set<size_t> layers;
  };
  std::map<std::pair<std::string, uint32_t>, Cause> causes;  // by block and width
  uint64_t plain = 0, all = 0;
  for (const LinearMeasurement& linear : shapes.linears) {
    const uint64_t weights = uint64_t{linear.in} * linear.out;
    all += weights;
    if (linear.candidates.empty()) plain += weights;
    if (codec::can_store(linear.in, linear.out)) continue;
    Cause& cause = causes[{nn::site_of(linear.kind) < 2 ? "attention" : "MLP", linear.in}];
    if (cause.layers.empty()) cause.first = linear.key;
    cause.layers.insert(linear.layer);
  }
  const double share = static_cast<double>(plain) / static_cast<double>(all);
  const std::string rule = fmt::format("no multiple of {} up to {}", codec::kColumnAlign, codec::kMaxIn);
  for (const auto& [what, cause] : causes) {
    const size_t n = cause.layers.size();
    warn(list, cause.first,
         fmt::format("{} inputs are {}: {} {} block{} in f16", what.second, rule, n, what.first,
                     n == 1 ? " stays" : "s stay"),
         fmt::format("{:.0f} % of the linears' weights cannot be made smaller, which raises the least --bpw",
                     100 * share));
  }
  if (shapes.head.candidates.empty()) {
    warn(list, shapes.head.key, fmt::format("{} inputs are {}: the head stays in f16", shapes.head.in, rule));
  }
  return share;
}

// Bytes by which files may grow from what shapes alone tell: what config.json says of the calibration, and digits in
// the headers of tensor files.
constexpr uint64_t kReserve = 1024, kReservePerLinear = 16;

// What can be written, from shapes alone.
struct Sizes {
  explicit Sizes(const model::ModelDir& d) : dir(d), shapes(shape_measurement(d)), reach(reach_of(shapes)) {}
  const model::ModelDir& dir;
  Measurement shapes;
  Reach reach;

  // Of the whole directory, at most, with linears at `bpw`.
  uint64_t bytes_at(double bpw, int head_bits) const {
    const uint64_t least = plan_for_bpw(dir, shapes, reach.smallest_bpw(), {head_bits, 0, 0}).bytes;
    const double more = bpw * static_cast<double>(reach.weights) - static_cast<double>(reach.smallest);
    return least + static_cast<uint64_t>(std::max(0.0, more) / 8) + kReserve +
           kReservePerLinear * shapes.linears.size();
  }
};

// Those that can be reached.
std::vector<TargetPlan> targets_of(const Sizes& sizes, const PlanOptions& o, const Findings& findings) {
  std::vector<TargetPlan> targets;
  // What is to be copied must be there before sizes can be told.
  if (quantizes(o) && !findings.attempt([&] { side_files(o.model); })) return targets;
  for (const double bpw : o.bpw) {
    if (!findings.attempt([&] { check_bpw(bpw, sizes.reach); })) continue;
    targets.push_back({bpw, sizes.bytes_at(bpw, o.head_bits.value_or(kDefaultHeadBits))});
  }
  if (o.size && findings.attempt([&] { check_size(sizes.dir, *o.size, {o.head_bits, 0, 0}); })) {
    // What is not used is not needed.
    const uint64_t largest = sizes.bytes_at(sizes.reach.largest_bpw(), o.head_bits.value_or(kLargestHeadBits));
    targets.push_back({0, std::min(*o.size, largest)});
  }
  return targets;
}

JobShape shape_of_job(const Run& run, const PlanOptions& o, const std::vector<TargetPlan>& targets) {
  JobShape job;
  constexpr size_t kMostTokens = size_t{1} << 40;  // beyond any job: what is made of it fits in 64 bits
  job.rows = std::min(o.calibration.rows, kMostTokens / std::max<size_t>(1, o.calibration.length));
  job.length = o.calibration.length;
  job.self_calibrated = o.calibration.files.empty();
  job.quantizes = quantizes(o);
  job.packs_bf16 = run.precision == backend::Precision::kBF16 ||
                   (run.precision == backend::Precision::kAuto && run.device->multiplies_bf16());
  job.on_host = run.device->runs_at_once();
  job.device_limit = run.device->memory_limit();
  for (const TargetPlan& target : targets) job.output_bytes.push_back(target.bytes);
  return job;
}

// What would make a job need no more than `bound`.
std::string memory_advice(const model::ModelDir& dir, JobShape job, const StageNeed& peak, uint64_t bound) {
  if (peak.stage == "self-calibration") return "give text with --calib, so that the model need not be in memory whole";
  const auto fits = [&](size_t rows) {
    job.rows = rows;
    return needs_of(dir.config(), dir.vocab_rows(), job).peak().memory_bytes <= bound;
  };
  size_t most = 0, too_many = job.rows;  // rows that fit, and that do not
  while (too_many - most > 1) {
    const size_t middle = most + (too_many - most) / 2;
    (fits(middle) ? most : too_many) = middle;
  }
  return most > 0 ? fmt::format("with --calib-rows {} it would fit", most)
                  : "give shorter rows, or run on a machine with more memory";
}

// `bound`: by --memory; 0: none.
MemoryThere memory_allowed(uint64_t bound) {
  MemoryThere there = memory_there();
  return bound == 0 || bound > there.bytes ? there : MemoryThere{bound, "--memory"};
}

// With the states on disk where memory has no room for them.
JobShape settle_states(const model::ModelDir& dir, JobShape job, uint64_t bound, std::vector<Finding>& list) {
  const auto need = [&] { return needs_of(dir.config(), dir.vocab_rows(), job).peak().memory_bytes; };
  const uint64_t most = memory_allowed(bound).bytes, in_memory = need();
  if (in_memory <= most) return job;
  job.states_on_disk = true;
  if (need() >= in_memory) {
    job.states_on_disk = false;
    return job;
  }
  warn(list, {},
       fmt::format("the states of all rows are kept in the work folder: with them, about {} of memory would be needed, "
                   "{} may be used",
                   format_bytes(in_memory), format_bytes(most)));
  return job;
}

// Where a limit is set, a job that goes beyond it is killed or fails: it is refused. The machine's own memory is no
// such limit.
void check_memory(const model::ModelDir& dir, const JobShape& job, const JobNeeds& needs, uint64_t bound,
                  std::vector<Finding>& list, const Findings& findings) {
  const StageNeed& peak = needs.peak();
  const MemoryThere most = memory_allowed(bound);
  if (peak.memory_bytes <= most.bytes) return;
  const std::string what = fmt::format("about {} of memory are needed ({}), {} may be used",
                                       format_bytes(peak.memory_bytes), peak.stage, format_bytes(most.bytes));
  const std::string advice = memory_advice(dir, job, peak, most.bytes);
  if (most.limit.empty()) return warn(list, {}, what, advice);
  findings.attempt([&] { throw Error(ErrorCode::kIo, fmt::format("{}: {}", most.limit, what), advice); });
}

void check_disk(const PlanOptions& o, const JobNeeds& needs, const Findings& findings) {
  findings.attempt([&] {
    if (o.output.empty()) return;
    const uint64_t available = io::free_space(o.output);
    if (available >= needs.disk_bytes) return;
    throw Error(ErrorCode::kIo,
                fmt::format("{}: {} are needed while it is written, {} are free", o.output.string(),
                            format_bytes(needs.disk_bytes), format_bytes(available)),
                "make room, or choose another disk for -o");
  });
}

// What start_job() and plan_job() share, on a model without errors.
struct JobChecks {
  std::optional<tokenizer::Tokenizer> tokenizer;
  std::vector<TargetPlan> targets;
  JobNeeds needs;  // without stages for calibration that makes no sense
  bool states_on_disk = false;
};
// list: for warnings; errors go to `findings`.
JobChecks check_job(const Run& run, const Sizes& sizes, const PlanOptions& o, std::vector<Finding>& list,
                    const Findings& findings) {
  JobChecks checks;
  checks.targets = targets_of(sizes, o, findings);
  if (findings.attempt([&] { checks.tokenizer = tokenizer::Tokenizer::load(o.model); })) {
    find_in_tokenizer(sizes.dir, *checks.tokenizer, list);
  }
  if (quantizes(o)) findings.attempt([&] { check_half_range(sizes.dir); });
  const CalibrationOptions& c = o.calibration;
  if (c.files.empty() && !findings.attempt([&] { calib::check_self_generation({c.rows, c.length, c.seed}); })) {
    return checks;
  }
  const JobShape job = settle_states(sizes.dir, shape_of_job(run, o, checks.targets), o.engine.memory, list);
  checks.states_on_disk = job.states_on_disk;
  checks.needs = needs_of(sizes.dir.config(), sizes.dir.vocab_rows(), job);
  check_memory(sizes.dir, job, checks.needs, o.engine.memory, list, findings);
  check_disk(o, checks.needs, findings);
  return checks;
}

// The calibration rows, as far as they can be had without running the model.
void check_calibration(Run& run, const model::ModelDir& dir, const CalibrationOptions& o, const Findings& findings) {
  findings.attempt([&] {
    if (!o.files.empty()) {
      calibration_rows(run, dir, o);
      return;
    }
    warn_beyond_positions(run, dir, o.length);
    load_chat_template(dir.path(), run.reporter);
  });
}

void describe(const Sizes& sizes, PlanResult& r) {
  const model::ModelDir& dir = sizes.dir;
  r.checked = true;
  r.architecture = dir.config().architecture;
  r.layers = dir.config().n_layers;
  r.hidden = dir.config().hidden;
  r.vocabulary = dir.vocab_rows();
  r.parameters = dir.parameters();
  r.tensor_bytes = r.mapped_bytes = dir.tensors().file_bytes();
  r.tied = dir.head_is_embedding();
  r.smallest_bpw = sizes.reach.smallest_bpw();
  r.largest_bpw = sizes.reach.largest_bpw();
}

void describe(const JobChecks& checks, const PlanOptions& o, PlanResult& r) {
  r.targets = checks.targets;
  r.tokens = o.calibration.rows * o.calibration.length;
  if (checks.needs.stages.empty()) return;
  r.stages = checks.needs.stages;
  r.memory_bytes = checks.needs.peak().memory_bytes;
  r.memory_there = memory_there().bytes;
  r.device_memory_bytes = checks.needs.device_bytes;
  r.disk_bytes = checks.needs.disk_bytes;
  if (!o.output.empty()) r.disk_there = io::free_space(o.output);
}

}  // namespace

PlanResult plan_job(const PlanOptions& o) {
  PlanResult r;
  EngineOptions engine = o.engine;
  engine.progress = [&r](const ProgressEvent& event) {
    if (event.kind == ProgressEvent::Kind::kWarning) warn(r.findings, {}, event.text);
  };
  Run run(engine);
  model::CheckedModel model = model::check_model(o.model);
  r.findings = std::move(model.findings);
  const Findings findings(r.findings, o.model);
  if (model.dir) {
    const Sizes sizes(*model.dir);
    describe(sizes, r);
    r.plain_share = find_plain_blocks(sizes.shapes, r.findings);
    const JobChecks checks = check_job(run, sizes, o, r.findings, findings);
    describe(checks, o, r);
    const auto tell_bytes = [&] {
      r.smallest_bytes = sizes.bytes_at(r.smallest_bpw, o.head_bits.value_or(kSmallestHeadBits));
      r.largest_bytes = sizes.bytes_at(r.largest_bpw, o.head_bits.value_or(kLargestHeadBits));
    };
    if (!quantizes(o)) findings.attempt(tell_bytes);  // else what fails here has failed for the targets
    if (!checks.targets.empty()) tell_bytes();
    if (checks.tokenizer) check_calibration(run, *model.dir, o.calibration, findings);
  }
  if (quantizes(o) && !o.output.empty()) {
    findings.attempt([&] { check_output_path(o.model, o.output, o.overwrite); });
  }
  std::stable_partition(r.findings.begin(), r.findings.end(), is_error);
  return r;
}

JobStart start_job(const Run& run, const PlanOptions& o) {
  JobStart start{model::ModelDir(o.model), {}, false};
  for (const std::string& warning : start.dir.warnings()) warn(start.warnings, {}, warning);
  const Findings first_is_thrown;
  start.dir.check_values(first_is_thrown);
  start.states_on_disk = check_job(run, Sizes(start.dir), o, start.warnings, first_is_thrown).states_on_disk;
  return start;
}

}  // namespace bw::pipeline
