#include "pipeline/quantize_job.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>

#include "bitwright/units.h"
#include "calib/sources.h"
#include "pipeline/compile.h"
#include "pipeline/job.h"
#include "pipeline/job_pieces.h"
#include "pipeline/layer_quantizer.h"
#include "pipeline/output_place.h"
#include "pipeline/quantize.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Prices need fewer tokens than rounding does: of so many rows is one for prices, but no fewer tokens than the least,
// and no more than the most.
constexpr size_t kFastShare = 8, kFastLeast = 2048, kFastMost = 8192;

calib::Rows rows_to_price(const calib::Rows& rows, Effort effort) {
  if (effort != Effort::kFast) return rows;
  const size_t least = (kFastLeast + rows.length - 1) / rows.length, most = std::max(least, kFastMost / rows.length);
  return calib::some_of(rows, std::clamp(rows.count() / kFastShare, least, most));
}

// From here on a result is of little use: e times less likely, on average, than what the original would say.
constexpr double kUselessKld = 1.0;

// What a target is to be, and what has become of it.
struct Target {
  fs::path output;
  double bpw = 0;  // 0: a size
  std::string key;
  std::unique_ptr<io::PieceDir> folder;
  std::unique_ptr<OutputBuilder> builder;  // null: finished by an earlier run
  QuantizeResult result;

  std::string name() const { return bpw > 0 ? fmt::format("{}bpw", bpw) : "size"; }
};

// What the rows of given text depend on besides the text.
std::string mix_key(const CalibrationOptions& c) {
  if (c.weights.empty()) return {};  // the files are one text
  std::string key;
  for (const calib::Source& source : calib::find_sources(c.files, c.weights)) {
    key += fmt::format("{} {}\n", *source.weight, source.files.size());
  }
  return key;
}

// Of all that the result of a target depends on and that is known before any work.
std::string target_key(const Run& run, const QuantizeOptions& o, const JobIdentity& identity,
                       const std::optional<Measurement>& measurement, double bpw) {
  const CalibrationOptions& c = o.calibration;
  return piece_key({engine_key(run), identity.model, identity.text, fmt::format("{} {} {}", c.rows, c.length, c.seed),
                    mix_key(c), measurement ? to_json(*measurement).dump() : "",
                    fmt::format("{} {} {} {} {}", bpw, o.size.value_or(0), o.head_bits.value_or(0), o.shard_bytes,
                                static_cast<int>(o.effort))});
}

io::Json to_json(const QuantizeResult& r) {
  return {{"bpw_linears", r.bpw_linears},
          {"bpw_head", r.bpw_head},
          {"predicted_kld", r.predicted_kld},
          {"kld", {r.measured.kld.value, r.measured.kld.error}},
          {"top1", {r.measured.top1.value, r.measured.top1.error}},
          {"tokens", r.measured.tokens},
          {"held_out", r.measured.held_out},
          {"planned_bytes", r.planned_bytes},
          {"written_bytes", r.written_bytes}};
}

QuantizeResult result_of(const io::Json& json) {
  QuantizeResult r;
  r.bpw_linears = json.at("bpw_linears").get<double>();
  r.bpw_head = json.at("bpw_head").get<double>();
  r.predicted_kld = json.at("predicted_kld").get<double>();
  const auto number = [](const io::Json& j) { return j.is_null() ? std::nan("") : j.get<double>(); };
  const auto estimate = [&](const char* key) {
    return Estimate{number(json.at(key).at(0)), number(json.at(key).at(1))};
  };
  r.measured.kld = estimate("kld");
  r.measured.top1 = estimate("top1");
  r.measured.held_out = json.at("held_out").get<bool>();
  const auto size = [&](const char* key) {
    if (!json.at(key).is_number_unsigned()) throw Error(ErrorCode::kModel, fmt::format("'{}' is no size", key));
    return json.at(key).get<uint64_t>();
  };
  r.measured.tokens = size("tokens");
  r.planned_bytes = size("planned_bytes");
  r.written_bytes = size("written_bytes");
  return r;
}

class QuantizeJob {
 public:
  QuantizeJob(Run& run, const model::ModelDir& dir, const QuantizeOptions& options, Clock::time_point start)
      : run_(run), dir_(dir), options_(options), start_(start) {
    if (options.measurement) measurement_ = load_measurement(*options.measurement, dir);
  }

  ~QuantizeJob() { run_.reporter.on_warning(nullptr); }
  QuantizeJob(const QuantizeJob&) = delete;
  QuantizeJob& operator=(const QuantizeJob&) = delete;

  std::vector<QuantizeResult> run() {
    open();
    find_targets();
    if (std::any_of(targets_.begin(), targets_.end(), [](const Target& t) { return t.builder != nullptr; })) {
      job_->keep_for_later([&] {
        calibrate();
        for (Target& target : targets_) {
          if (target.builder) write(target);
        }
      });
    }
    job_->remove();
    std::vector<QuantizeResult> results;
    for (const Target& target : targets_) {
      results.push_back(target.result);
      results.back().output = target.output;
      results.back().bpw_target = target.bpw;
    }
    return results;
  }

 private:
  void open() {
    const fs::path work = work_path(options_.work, options_.model, options_.output);
    const std::vector<fs::path> outputs = outputs_of(options_);
    const auto check_outputs = [&] {
      for (const fs::path& output : outputs) check_output_path(dir_.path(), output, options_.overwrite);
    };
    if (!fs::exists(work)) check_outputs();  // before anything is made
    const JobIdentity identity{fingerprint(dir_), text_fingerprint(options_.calibration.files), dir_.config().n_layers};
    job_ = std::make_unique<JobDir>(work, identity, options_.work, run_.reporter);
    for (const fs::path& output : outputs) settle_output(output);
    if (options_.work.restart) check_outputs();  // before anything is lost; else some of them may be finished
    job_->begin(options_.work.restart);
    drop_others(outputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      Target target;
      target.output = outputs[i];
      target.bpw = options_.bpw.empty() ? 0 : options_.bpw[i];
      target.key = target_key(run_, options_, identity, measurement_, target.bpw);
      targets_.push_back(std::move(target));
    }
    run_.reporter.advise_interrupted([work] { return kept_advice(work); });
    keep_warnings();
  }

  // What earlier runs have warned of is recalled; what this one does is kept. Not what is told at the beginning of
  // every run.
  void keep_warnings() {
    std::string targets;
    for (const Target& target : targets_) targets += target.key;
    const std::string key = piece_key({"warnings", targets});
    size_t next = 0;
    for (const std::string& name : job_->root().names()) {
      if (!name.starts_with(kWarningPrefix)) continue;
      next = std::max<size_t>(next, std::strtoul(name.c_str() + kWarningPrefix.size(), nullptr, 10) + 1);
      job_->read(job_->root(), name, key, [&](const io::PieceReader& piece) {
        run_.reporter.recall(piece.header().at("text").get<std::string>());
        return piece.left() == 0;
      });
    }
    run_.reporter.on_warning([this, key, next](std::string_view stage, const std::string& text) mutable {
      if (stage == "resume") return;
      const std::string name = fmt::format("{}{:05}.piece", kWarningPrefix, next++);
      io::PieceWriter(job_->root(), name, {{"text", text}}).seal(key);
    });
  }

  // Of what an earlier run has begun, outputs that are none of these.
  void drop_others(const std::vector<fs::path>& outputs) {
    for (const std::string& name : job_->folder_names()) {
      const std::optional<fs::path> place = kept_place(job_->folder(name));
      const auto is_place = [&](const fs::path& output) { return fs::absolute(output) == *place; };
      if (place && std::none_of(outputs.begin(), outputs.end(), is_place)) abandon_output(*place);
    }
  }

  // Tells the finished targets from those that are still to be written, and makes the builders of these.
  void find_targets() {
    for (const std::string& name : finished_pieces(job_->root())) {
      job_->read(job_->root(), name, kFinishedKey, [&](const io::PieceReader& piece) {
        for (const io::Json& target : piece.header()) {
          target.at("key").get<std::string>();
          result_of(target.at("result"));
        }
        if (piece.left() > 0 || piece.header().empty()) return false;
        finished_.update(piece.header());
        return true;
      });
    }
    for (Target& target : targets_) {
      target.folder = std::make_unique<io::PieceDir>(job_->folder(target.name()));
      const io::Json found = finished_.value(target.name(), io::Json::object());
      const bool built = fs::exists(target.output) && !fs::exists(partial_of(target.output));
      if (built && found.value("key", "") == target.key) {
        target.result = result_of(found.at("result"));
        job_->tell_resumed(fmt::format("{} is complete", target.output.string()));
        continue;
      }
      if (kept_place(*target.folder) != fs::absolute(target.output)) keep_place(*target.folder, target.output);
      target.builder = std::make_unique<OutputBuilder>(dir_, target.output, options_.overwrite);
    }
  }

  void calibrate() {
    const uint64_t seed = options_.calibration.seed;
    calib::Mix mix = rows_of_job(run_, dir_, options_.calibration, *job_);
    calibration_.rows = std::move(mix.rows);
    calibration_.held_out = std::move(mix.held_out);
    if (options_.effort == Effort::kFast) {  // what is only told must not take long
      calibration_.held_out = calib::some_of(calibration_.held_out, (calibration_.held_out.count() + 1) / 2);
    }
    sources_ = std::move(mix.sources);
    const bool weighs = rounding_effort(options_.effort).weighs_tokens;
    if (!measurement_) {
      const calib::Rows priced = rows_to_price(calibration_.rows, options_.effort);
      Measured measured = measure_in_job(run_, dir_, priced, calibration_.rows.ids.size(), seed, *job_);
      measurement_ = std::move(measured.measurement);
      if (weighs) calibration_.gains = std::move(measured.gains);
    } else if (weighs) {
      calibration_.gains = gains_in_job(run_, dir_, calibration_.rows, seed, *job_);
    }
    // What the output's config tells of calibration are the rows that it is quantized with.
    measurement_->source = calibration_.rows.source;
    measurement_->rows = calibration_.rows.count();
    measurement_->length = calibration_.rows.length;
  }

  void write(Target& target) {
    const OutputOptions output{options_.head_bits, options_.shard_bytes, 0};
    const OutputPlan plan = options_.size ? plan_for_size(dir_, *measurement_, *options_.size, output)
                                          : plan_for_bpw(dir_, *measurement_, target.bpw, output);
    run_.reporter.note("allocate", fmt::format("{}: {:.4f} bits per weight, head {:.3f}, {} bytes ({}) planned",
                                               target.output.string(), plan.bpw_linears, plan.bpw_head, plan.bytes,
                                               format_bytes(plan.bytes)));
    check_space(target.output, plan.bytes + bytes_of_documents(dir_.config().n_layers * model::kLinearsPerLayer + 1));
    const StageWork work{*job_, piece_key({target.key, layouts_key(plan)})};
    const StreamComparison seen =
        quantize_layers(run_, dir_, calibration_, plan, options_.effort, *target.folder, work);
    tell_useless(target, seen.measured);
    QuantizeResult& r = target.result;
    r.measured = {seen.measured.kld, seen.measured.top1, seen.measured.tokens, seen.held_out};
    r.bpw_linears = plan.bpw_linears;
    r.bpw_head = plan.bpw_head;
    r.predicted_kld = plan.predicted_kld;
    r.planned_bytes = plan.bytes;
    const std::vector<Document> documents = documents_of(report_of(target, plan, seen), plan);
    {
      const StageClock::Span span(run_.clock, "compile");
      r.written_bytes = target.builder->finish(run_, plan, target.folder->path(), documents, [&](uint64_t bytes) {
        r.written_bytes = bytes;
        finished_[target.name()] = {{"key", target.key}, {"result", to_json(r)}};
        keep_finished(job_->root(), finished_);
      });
    }
    discard_layers(*target.folder, dir_.config().n_layers);
    r.stages = run_.clock.times();
    r.seconds = seconds();
  }

  report::Report report_of(const Target& target, const OutputPlan& plan, const StreamComparison& seen) {
    const StageClock::Span span(run_.clock, "report");
    report::Report report =
        make_report(run_, dir_, {options_, *measurement_, plan, seen, sources_, job_->identity().text, seconds()});
    report.bpw_target = target.bpw;
    return report;
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  void tell_useless(const Target& target, const EvaluateResult& seen) const {
    if (seen.kld.value < kUselessKld) return;
    run_.reporter.warn("quantize", fmt::format("{}: {:.2f} nats per token from the original, perplexity {:.4g} instead "
                                               "of {:.4g}; it is of little use: give it more bits",
                                               target.output.string(), seen.kld.value, seen.perplexity.value,
                                               seen.reference_perplexity.value));
  }

  static std::string layouts_key(const OutputPlan& plan) {
    std::string text;
    for (const auto& [key, layout] : plan.layouts) text += fmt::format("{} {}\n", key, layout.to_string());
    return text;
  }

  Run& run_;
  const model::ModelDir& dir_;
  const QuantizeOptions& options_;
  Clock::time_point start_;
  std::optional<Measurement> measurement_;
  std::unique_ptr<JobDir> job_;
  std::vector<Target> targets_;
  io::Json finished_ = io::Json::object();
  CalibrationData calibration_;
  std::vector<CalibrationSource> sources_;  // of its rows
};

}  // namespace

std::vector<fs::path> outputs_of(const QuantizeOptions& o) {
  if (o.bpw.size() <= 1) return {o.output};
  std::vector<fs::path> outputs;
  for (const double bpw : o.bpw) outputs.push_back(beside(o.output, fmt::format("-{}bpw", bpw)));
  return outputs;
}

std::vector<QuantizeResult> run_quantize_job(Run& run, const model::ModelDir& dir, const QuantizeOptions& options,
                                             Clock::time_point start) {
  return QuantizeJob(run, dir, options, start).run();
}

}  // namespace bw::pipeline
