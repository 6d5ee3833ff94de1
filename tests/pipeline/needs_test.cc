// The estimate of memory and disk.
#include "pipeline/needs.h"

#include <gtest/gtest.h>

namespace bw::pipeline {
namespace {

// SmolLM2-135M, the job of docs/performance.md.
model::ModelConfig smollm2() {
  model::ModelConfig c;
  c.hidden = 576;
  c.intermediate = 1536;
  c.n_layers = 30;
  c.n_heads = 9;
  c.n_kv_heads = 3;
  c.head_dim = 64;
  return c;
}
constexpr size_t kRows = 49152;  // of its embedding

JobShape job() {
  JobShape j;
  j.rows = 36;
  j.length = 512;
  j.quantizes = j.packs_bf16 = true;
  return j;
}

uint64_t memory(const JobShape& j) { return needs_of(smollm2(), kRows, j).peak().memory_bytes; }

TEST(Needs, AreNearWhatTheDocumentedJobTook) {
  // 976 MB, of which at least the embedding (57 MB) are mapped pages.
  const double measured = 976e6 - 57e6;
  EXPECT_NEAR(static_cast<double>(memory(job())), measured, 0.1 * measured);
}

TEST(Needs, FollowTheJob) {
  const JobNeeds all = needs_of(smollm2(), kRows, job());
  ASSERT_EQ(all.stages.size(), 5u);
  EXPECT_EQ(all.stages.front().stage, "gradients: forward");
  EXPECT_EQ(all.stages.back().stage, "quantize: head");
  EXPECT_EQ(all.device_bytes, 0u);
  JobShape j = job();
  j.quantizes = false;
  EXPECT_EQ(needs_of(smollm2(), kRows, j).stages.size(), 3u);
  EXPECT_LT(memory(j), memory(job()));
  j = job();
  j.rows = 360;
  EXPECT_GT(memory(j), memory(job()));
  j = job();
  j.packs_bf16 = false;
  EXPECT_GE(memory(j), memory(job()));
  j = job();
  j.self_calibrated = true;
  const JobNeeds self = needs_of(smollm2(), kRows, j);
  EXPECT_EQ(self.stages.front().stage, "self-calibration");
  EXPECT_EQ(self.peak().stage, "self-calibration");  // keys and values of all rows: 849 MB
}

TEST(Needs, OfStatesOnDiskAreThoseOfThreeBatches) {
  JobShape j = job();
  const JobNeeds all = needs_of(smollm2(), kRows, j);
  j.states_on_disk = true;
  const JobNeeds less = needs_of(smollm2(), kRows, j);
  const uint64_t tokens = 18432, left = 3 * 4096;
  EXPECT_EQ(all.stages[3].stage, "quantize: layers");
  EXPECT_EQ(all.stages[3].memory_bytes - less.stages[3].memory_bytes, 2 * 4 * (tokens - left) * (576 + 1536));
  EXPECT_EQ(less.disk_bytes - all.disk_bytes, 2 * 4 * tokens * (2 * 576 + 576 + 1536));
  j.rows = 3600;  // of what is left, only the gains grow with the rows
  EXPECT_EQ(memory(j) - less.peak().memory_bytes, 4 * (j.rows - 36) * 512 * 7 * 30);
  j.rows = 8;
  JobShape in_memory = j;
  in_memory.states_on_disk = false;
  EXPECT_EQ(memory(j), memory(in_memory));
}

TEST(Needs, OfAnotherDeviceAreItsOwnAndTheHostsIsLess) {
  JobShape j = job();
  j.on_host = false;
  const JobNeeds far = needs_of(smollm2(), kRows, j);
  EXPECT_GT(far.device_bytes, 300u << 20);
  EXPECT_LT(far.peak().memory_bytes, memory(job()));
  j.device_limit = 200u << 20;  // the states stay at home
  EXPECT_EQ(memory(j), far.peak().memory_bytes + uint64_t{2} * 4 * 18432 * (576 + 1536));
}

TEST(Needs, OfDiskAreTheWorkFolderOrTheOutputsWithTheLastOneTwice) {
  JobShape j = job();
  const uint64_t tokens = 18432, state = 2 * 4 * tokens * 576, gains = 4 * tokens * (7 * 30 + 1);
  const uint64_t gradients = 2 * tokens * 576 * 30 + state + 2 * gains;
  EXPECT_EQ(needs_of(smollm2(), kRows, j).disk_bytes, gradients);
  j.output_bytes = {uint64_t{100} << 20};
  EXPECT_EQ(needs_of(smollm2(), kRows, j).disk_bytes, gradients);
  j.output_bytes = {uint64_t{400} << 20, uint64_t{500} << 20};
  const uint64_t report = (96 << 10) + (2 << 10) * (7 * 30 + 1);
  const uint64_t held_out = 4 * (2 * 4 + 5) * 512 * 576;  // two states of four rows, five of the first
  EXPECT_EQ(needs_of(smollm2(), kRows, j).disk_bytes,
            (uint64_t{1400} << 20) + 3 * report + 2 * (state + held_out) + gains);
}

TEST(Needs, MemoryThereIsWhatTheMachineAndItsLimitsLeave) {
  EXPECT_GT(memory_there().bytes, uint64_t{16} << 20);
  EXPECT_LT(memory_there().bytes, uint64_t{1} << 50);
}

}  // namespace
}  // namespace bw::pipeline
