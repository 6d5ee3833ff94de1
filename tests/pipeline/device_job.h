// Measuring and quantizing a tiny model on a device of one's own, to see what the device was asked for.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/sim/sim_backend.h"
#include "base/rng.h"
#include "io/file_write.h"
#include "pipeline/measure.h"
#include "pipeline/output_plan.h"
#include "pipeline/quantize.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace bw::pipeline {

// Rows of random tokens.
inline calib::Rows random_rows(size_t count, size_t length, size_t vocab) {
  Rng rng(5);
  calib::Rows rows;
  rows.length = length;
  rows.source = "random tokens";
  for (size_t i = 0; i < count * length; ++i) rows.ids.push_back(rng.below(static_cast<uint32_t>(vocab)));
  return rows;
}

// What one stage of a job left behind.
struct StageOutcome {
  std::map<std::string, StageTime> stages;
  backend::Counters counters;
  backend::sim::SimTimeline timeline;  // of a sim device
  backend::sim::SimTimeline halfway;   // measuring: when the layers have been gone through forward
  std::string bytes;                   // its result: the measurement as text, or the layers' files
};

class DeviceJob {
 public:
  explicit DeviceJob(const test::TinySizes& sizes, const std::string& architecture = "LlamaForCausalLM")
      : vocab_(sizes.vocab) {
    test::make_tiny_model(architecture, sizes).save(folder_ / "model");
    dir_.emplace(folder_ / "model");
  }

  StageOutcome measure(std::unique_ptr<backend::Backend> device, size_t rows, size_t length, double min_step = 0.02) {
    const auto* sim = dynamic_cast<const backend::sim::SimBackend*>(device.get());
    backend::sim::SimTimeline halfway;
    EngineOptions options;
    const double layers = static_cast<double>(dir_->config().n_layers);
    options.progress = [&](const ProgressEvent& e) {
      if (sim && e.stage == "gradients" && e.done < layers) halfway = sim->timeline();
    };
    Run run(options, std::move(device));
    run.states_on_disk = states_on_disk;
    JobDir job = job_dir(run);
    Measured measured =
        measure_model(run, *dir_, random_rows(rows, length, vocab_), rows * length, kSeed, {job, "measure"}, min_step);
    measurement_ = std::move(measured.measurement);
    StageOutcome result = outcome(run, to_json(measurement_).dump());
    result.halfway = halfway;
    return result;
  }

  // With the measurement of the last call of measure().
  StageOutcome quantize(std::unique_ptr<backend::Backend> device, size_t rows, size_t length, double bpw,
                        Effort effort = Effort::kNormal) {
    Run run({}, std::move(device));
    run.states_on_disk = states_on_disk;
    const OutputPlan plan = plan_for_bpw(*dir_, measurement_, bpw, {});
    JobDir job = job_dir(run);
    const io::PieceDir layers = job.folder("layers");
    quantize_layers(run, *dir_, calibration_of(random_rows(rows, length, vocab_)), plan, effort, layers,
                    {job, "quantize"});
    std::string bytes;
    for (size_t layer = 0; layer <= dir_->config().n_layers; ++layer) {
      bytes += io::read_file(layers.file(layer_piece(layer)), uint64_t{1} << 30);
    }
    return outcome(run, std::move(bytes));
  }

  // With the gains of the rows, the same on every device, so that what quantizing asks of one can be compared.
  const CalibrationData& calibration_of(const calib::Rows& rows) {
    CalibrationData& data = calibration_[rows.ids.size()];
    if (data.gains.layers.empty()) {
      Run run({}, backend::make_cpu_backend(2));
      JobDir job = job_dir(run);
      data = {rows, random_rows(2, rows.length, vocab_),
              find_gradients(run, *dir_, rows, kSeed, {job, "gains"}, nullptr)};
    }
    return data;
  }

  bool states_on_disk = false;  // of what is run from now on

  const Measurement& measurement() const { return measurement_; }
  const model::ModelDir& dir() const { return *dir_; }

 private:
  static constexpr uint64_t kSeed = 1;

  // A new one, which saves no states on the way.
  JobDir job_dir(Run& run) {
    const WorkOptions options{{}, false, 1e9};
    return JobDir(folder_ / ("work-" + std::to_string(runs_++)), {"model", "text"}, options, run.reporter);
  }

  static StageOutcome outcome(Run& run, std::string bytes) {
    run.device->wait_all("test");
    StageOutcome result;
    for (const StageTime& t : run.clock.times()) result.stages[t.stage] = t;
    result.counters = run.device->counters();
    if (const auto* sim = dynamic_cast<const backend::sim::SimBackend*>(run.device.get())) {
      result.timeline = sim->timeline();
    }
    result.bytes = std::move(bytes);
    return result;
  }

  test::TempDir folder_;
  size_t vocab_, runs_ = 0;
  std::optional<model::ModelDir> dir_;
  Measurement measurement_;
  std::map<size_t, CalibrationData> calibration_;  // by number of tokens
};

}  // namespace bw::pipeline
