// How often a job waits for its device and copies to it: neither rows nor layouts may cost a wait or a copy.
#include <gtest/gtest.h>

#include "pipeline/device_job.h"

namespace bw::pipeline {
namespace {

using backend::sim::make_sim_backend;
using backend::sim::SimOptions;

constexpr size_t kLength = 128;
const test::TinySizes kSizes{.hidden = 64, .intermediate = 96, .layers = 3, .vocab = 96};

SimOptions two_threads() {
  SimOptions options;
  options.threads = 2;
  return options;
}

// Waits and copies of all stages but the one that brings the rows' embeddings to the device.
struct Traffic {
  uint64_t waits = 0, uploads = 0, downloads = 0;
  bool operator==(const Traffic&) const = default;
};

Traffic traffic_of(const StageOutcome& outcome) {
  Traffic t;
  for (const auto& [name, stage] : outcome.stages) {
    if (name == "embed") continue;
    t.waits += stage.waits;
    t.uploads += stage.uploads;
    t.downloads += stage.downloads;
  }
  return t;
}

void expect_few(const Traffic& t, const model::ModelDir& dir) {
  const size_t modules = 2 * dir.config().n_layers;
  size_t weights = 0;
  for (const auto* entry : dir.tensors().entries()) weights += dir.uses(entry->name);
  EXPECT_LE(t.waits, 2 * modules);
  EXPECT_LE(t.uploads, weights + 2 * modules);
}

size_t most_layouts(const Measurement& m) {
  size_t most = 0;
  for (const LinearMeasurement& linear : m.linears) most = std::max(most, linear.candidates.size());
  return most;
}

TEST(DeviceCounts, MeasuringAsksForAsMuchAtAnyNumberOfRowsAndLayouts) {
  DeviceJob job(kSizes);
  const Traffic few = traffic_of(job.measure(make_sim_backend(two_threads()), 4, kLength, 8.0));
  const size_t few_layouts = most_layouts(job.measurement());
  const Traffic many = traffic_of(job.measure(make_sim_backend(two_threads()), 64, kLength, 0.001));
  const size_t many_layouts = most_layouts(job.measurement());
  EXPECT_LT(few_layouts, many_layouts);
  EXPECT_GE(many_layouts, 30u);
  EXPECT_EQ(few, many);
  expect_few(few, job.dir());
}

TEST(DeviceCounts, QuantizingAsksForAsMuchAtAnyNumberOfRowsAndLayouts) {
  DeviceJob job(kSizes);
  job.measure(make_sim_backend(two_threads()), 4, kLength);
  const Traffic few = traffic_of(job.quantize(make_sim_backend(two_threads()), 4, kLength, 8.5));
  const Traffic many = traffic_of(job.quantize(make_sim_backend(two_threads()), 64, kLength, 8.5));
  const Traffic mixed = traffic_of(job.quantize(make_sim_backend(two_threads()), 4, kLength, 4.1));
  EXPECT_EQ(few, many);
  EXPECT_EQ(few, mixed);
  expect_few(few, job.dir());
}

TEST(DeviceCounts, TheCpuIsAskedForTheSame) {
  DeviceJob job(kSizes);
  job.measure(backend::make_cpu_backend(2), 4, kLength);
  const Traffic sim = traffic_of(job.quantize(make_sim_backend(two_threads()), 4, kLength, 4.5));
  Traffic cpu = traffic_of(job.quantize(backend::make_cpu_backend(2), 4, kLength, 4.5));
  EXPECT_LE(cpu.waits, sim.waits);  // it is never ahead, so nothing holds it back
  cpu.waits = sim.waits;
  EXPECT_EQ(sim, cpu);
}

class SameBytes : public testing::TestWithParam<std::string> {};

TEST_P(SameBytes, OnTheTestDeviceAndOnTheCpu) {
  DeviceJob job(kSizes, GetParam());
  const StageOutcome cpu = job.measure(backend::make_cpu_backend(2), 40, kLength);
  const StageOutcome sim = job.measure(make_sim_backend(two_threads()), 40, kLength);
  EXPECT_EQ(cpu.bytes, sim.bytes);
  EXPECT_EQ(job.quantize(backend::make_cpu_backend(1), 40, kLength, 4.5).bytes,
            job.quantize(make_sim_backend(two_threads()), 40, kLength, 4.5).bytes);
}

INSTANTIATE_TEST_SUITE_P(Architectures, SameBytes,
                         testing::Values("LlamaForCausalLM", "Qwen2ForCausalLM", "Gemma3ForCausalLM"));

TEST(DeviceMemory, StatesThatDoNotFitStayOnTheHostAndGiveTheSameBytes) {
  DeviceJob job(kSizes);
  SimOptions small = two_threads();
  small.memory_limit = uint64_t{16} << 20;
  const size_t rows = 160;  // five batches of 4096 tokens
  const StageOutcome free = job.measure(make_sim_backend(two_threads()), rows, kLength);
  const StageOutcome limited = job.measure(make_sim_backend(small), rows, kLength);
  EXPECT_EQ(free.bytes, limited.bytes);
  EXPECT_LE(limited.counters.most_device_bytes, small.memory_limit);
  EXPECT_GT(limited.counters.uploads, free.counters.uploads);  // the states have been on the road
  EXPECT_EQ(job.quantize(make_sim_backend(two_threads()), rows, kLength, 4.5).bytes,
            job.quantize(make_sim_backend(small), rows, kLength, 4.5).bytes);
}

TEST(DeviceMemory, StatesInAFileGiveTheSameBytesAndOnlyAFewBatchesAreInMemory) {
  const size_t rows = 160;
  for (const bool sim : {false, true}) {
    DeviceJob job(kSizes, sim ? "LlamaForCausalLM" : "Gemma3ForCausalLM");
    const auto device = [&] { return sim ? make_sim_backend(two_threads()) : backend::make_cpu_backend(2); };
    const StageOutcome measured = job.measure(device(), rows, kLength);
    const StageOutcome quantized = job.quantize(device(), rows, kLength, 4.5);
    job.states_on_disk = true;
    EXPECT_EQ(job.measure(device(), rows, kLength).bytes, measured.bytes) << sim;
    const StageOutcome from_file = job.quantize(device(), rows, kLength, 4.5);
    EXPECT_EQ(from_file.bytes, quantized.bytes) << sim;
    if (sim) {
      EXPECT_LT(from_file.counters.most_device_bytes, 0.7 * quantized.counters.most_device_bytes);
    }
  }
}

}  // namespace
}  // namespace bw::pipeline
