// A job on the cuda device, on the fake machine: what it does must be what the cpu does, up to rounding.
#include <gtest/gtest.h>

#include "backend/fake_cuda/machine.h"
#include "pipeline/device_job.h"

namespace bw::pipeline {
namespace {

constexpr size_t kRows = 3, kLength = 48;
const test::TinySizes kSizes{.hidden = 64, .intermediate = 96, .layers = 2, .vocab = 96};

constexpr double kShare = 0.03;  // of a price, for bfloat16 against float

class CudaJob : public testing::TestWithParam<std::string> {};

// Prices of the layouts that both have: which ones are on the convex hull may depend on rounding.
void expect_alike(const Measurement& cuda, const Measurement& cpu) {
  ASSERT_EQ(cuda.linears.size(), cpu.linears.size());
  for (size_t i = 0; i < cpu.linears.size(); ++i) {
    const LinearMeasurement &a = cuda.linears[i], &b = cpu.linears[i];
    SCOPED_TRACE(b.key);
    size_t compared = 0;
    for (const codec::Candidate& wanted : b.candidates) {
      for (const codec::Candidate& got : a.candidates) {
        if (got.layout != wanted.layout) continue;
        EXPECT_NEAR(got.price, wanted.price, kShare * wanted.price) << got.bits << " bits";
        ++compared;
      }
    }
    EXPECT_GE(compared, 18u);  // six widths in three group sizes
  }
  const auto &a = cuda.head.candidates, &b = cpu.head.candidates;
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < b.size(); ++i)
    EXPECT_NEAR(a[i].price, b[i].price, kShare * b[i].price) << b[i].bits << " bits";
}

TEST_P(CudaJob, MeasuresAndQuantizesAsTheCpuDoes) {
  DeviceJob job(kSizes, GetParam());
  const StageOutcome first = job.measure(fake_cuda::make_backend(), kRows, kLength);
  const Measurement cuda = job.measurement();
  EXPECT_EQ(first.bytes, job.measure(fake_cuda::make_backend(), kRows, kLength).bytes);
  job.measure(backend::make_cpu_backend(2), kRows, kLength);
  expect_alike(cuda, job.measurement());

  // Differences in the last bit decide some roundings otherwise, and what follows from them; corrections of disturbed
  // inputs pass more of that on.
  for (const auto& [effort, wanted] : {std::pair{Effort::kFast, 0.6}, {Effort::kNormal, 0.4}}) {
    const std::string bytes = job.quantize(fake_cuda::make_backend(), kRows, kLength, 4.5, effort).bytes;
    EXPECT_EQ(bytes, job.quantize(fake_cuda::make_backend(), kRows, kLength, 4.5, effort).bytes);
    const std::string cpu = job.quantize(backend::make_cpu_backend(2), kRows, kLength, 4.5, effort).bytes;
    ASSERT_EQ(bytes.size(), cpu.size());
    size_t same = 0;
    for (size_t i = 0; i < cpu.size(); ++i) same += bytes[i] == cpu[i];
    EXPECT_GT(static_cast<double>(same), wanted * static_cast<double>(cpu.size()));
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, CudaJob,
                         testing::Values("LlamaForCausalLM", "Qwen2ForCausalLM", "Gemma3ForCausalLM"));

TEST(CudaJobMemory, StatesThatDoNotFitGiveTheSameBytes) {
  DeviceJob job(kSizes);
  const StageOutcome free = job.measure(fake_cuda::make_backend(), kRows, kLength);
  EXPECT_EQ(job.measure(fake_cuda::make_backend(uint64_t{8} << 20), kRows, kLength).bytes, free.bytes);
}

}  // namespace
}  // namespace bw::pipeline
