// The cuda backend's own work, on the fake machine: queues, memory, errors, traces. Its operations are in
// conformance_test.cc.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include <gtest/gtest.h>

#include "backend/fake_cuda/machine.h"
#include "base/half.h"
#include "bitwright/error.h"

namespace bw::backend {
namespace {

using fake_cuda::machine;
using fake_cuda::make_backend;

class CudaBackend : public testing::Test {
 protected:
  void SetUp() override { machine() = {}; }
  void TearDown() override {
    machine() = {};
    fake_cuda::reset_errors();
  }

  static std::string error_of(const std::function<void()>& body, ErrorCode code) {
    try {
      body();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      return e.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }
  static std::string refusal() {
    return error_of([] { make_backend(); }, ErrorCode::kUsage);
  }
};

Tensor counting(Backend& device, size_t n) {
  std::vector<float> data(n);
  std::iota(data.begin(), data.end(), 0.0f);
  return device.upload(std::span<const float>(data), 1, n);
}

TEST_F(CudaBackend, NoDriver) {
  machine().driver_version = 0;
  machine().devices = 0;
  EXPECT_EQ(refusal(),
            "device cuda: no NVIDIA driver was found; run with --device cpu, or install the driver, or give the "
            "container access to it");
}

TEST_F(CudaBackend, AnOldDriver) {
  machine().driver_version = 12040;
  EXPECT_EQ(
      refusal(),
      "device cuda: the NVIDIA driver knows CUDA up to 12.4, but this build needs 13.0; run with --device cpu, or "
      "update the driver");
}

TEST_F(CudaBackend, ADriverThatIsOlderOnlyInTheMinorVersionIsRefusedWhereTheRuntimeRefusesIt) {
  machine().runtime_version = 13010;
  EXPECT_NE(refusal().find("knows CUDA up to 13.0, but this build needs 13.1"), std::string::npos);
}

TEST_F(CudaBackend, NoDevice) {
  machine().devices = 0;
  EXPECT_EQ(refusal(),
            "device cuda: no NVIDIA GPU was found; run with --device cpu, or check what nvidia-smi and "
            "CUDA_VISIBLE_DEVICES say");
}

TEST_F(CudaBackend, AnOldDevice) {
  machine().major = 7;
  machine().minor = 5;
  EXPECT_EQ(refusal(),
            "device cuda: Fake GPU has compute capability 7.5, but 8.0 is needed; run with --device cpu, or use an "
            "Ampere GPU or a later one");
}

TEST_F(CudaBackend, QueuesAreOrderedByWhatTheyTouchAlone) {
  const auto device = make_backend();
  Tensor t = counting(*device, 1000);
  for (int round = 0; round < 5; ++round) {
    device->enqueue(op::Scale{t, 2});
    t = device->upload(device->download(t));
    device->enqueue(op::Add{t, t});
  }
  const std::vector<float> result = device->read<float>(t, "test");
  for (size_t i = 0; i < result.size(); ++i) ASSERT_EQ(result[i], static_cast<float>(i) * 1024);
}

TEST_F(CudaBackend, ADownloadSeesWhatWasThereBeforeALaterWrite) {
  const auto device = make_backend();
  const Tensor t = counting(*device, 50);
  const HostTensor before = device->download(t);
  device->enqueue(op::Fill{t, 7});
  const HostTensor after = device->download(t);
  device->wait(after, "test");
  device->wait(before, "test");
  EXPECT_EQ(before.as<float>()[49], 49.0f);
  EXPECT_EQ(after.as<float>()[49], 7.0f);
}

TEST_F(CudaBackend, HostMemoryIsNotUsedAgainBeforeItsCopyHasRun) {
  const auto device = make_backend();
  std::vector<Tensor> tensors;
  for (int i = 0; i < 20; ++i) {
    const std::vector<float> data(100, static_cast<float>(i));
    tensors.push_back(device->upload(std::span<const float>(data), 10, 10));
  }
  for (const Tensor& t : tensors) device->download(t);  // nobody wants the results
  for (int i = 0; i < 20; ++i) EXPECT_EQ(device->read<float>(tensors[static_cast<size_t>(i)], "test")[99], i);
}

TEST_F(CudaBackend, TensorsMayGoWhileTheyAreUsed) {
  const size_t before = fake_cuda::device_bytes();
  auto device = make_backend();
  HostTensor result;
  {
    const Tensor t = counting(*device, 64), whole = device->allocate(8, 16);
    device->enqueue(op::Fill{whole, 1});
    const Tensor part = whole.cols_slice(3, 8);
    device->enqueue(op::Copy{device->upload(std::span<const float>(std::vector<float>(64, 2.0f)), 8, 8), part});
    result = device->download(part);
  }
  device->wait(result, "test");
  EXPECT_EQ(std::accumulate(result.as<float>().begin(), result.as<float>().end(), 0.0f), 128);
  result = {};
  device.reset();
  EXPECT_EQ(fake_cuda::device_bytes(), before);
}

TEST_F(CudaBackend, MemoryMayOutliveTheBackend) {
  const size_t before = fake_cuda::device_bytes();
  Tensor t;
  HostTensor host;
  {
    const auto device = make_backend();
    t = counting(*device, 10);
    host = device->download(t);
    device->wait(host, "test");
  }
  EXPECT_EQ(host.as<float>()[9], 9.0f);
  t = {};
  host = {};
  EXPECT_EQ(fake_cuda::device_bytes(), before);
}

TEST_F(CudaBackend, KeepsToItsMemoryLimit) {
  const auto device = make_backend(4000);
  EXPECT_EQ(device->memory_limit(), 4000u);
  Tensor half = device->allocate(1, 500);
  EXPECT_EQ(error_of([&] { device->allocate(1, 501); }, ErrorCode::kIo),
            "device cuda: 2.0 kB more are needed, but 2.0 kB of 4.0 kB are in use; give more --device-memory: a "
            "batch of 4096 tokens, the weights of two layers and the head must fit");
  EXPECT_THROW(counting(*device, 501), Error);
  const Tensor other = counting(*device, 500);
  half = {};
  device->allocate(1, 500);
  EXPECT_EQ(device->counters().most_device_bytes, 4000u);
}

TEST_F(CudaBackend, MemoryIsFreedOnlyWhenItsCopiesHaveRun) {
  const auto device = make_backend(4000);
  const HostTensor result = device->download(counting(*device, 500));
  const Tensor other = device->allocate(1, 600);  // not both fit
  device->enqueue(op::Fill{other, 1});
  device->wait(result, "test");
  EXPECT_EQ(result.as<float>()[499], 499.0f);
}

TEST_F(CudaBackend, AFullDeviceIsEmptiedOfWhatHasRun) {
  machine().memory_bytes = size_t{72} << 20;  // 64 MiB go to the libraries
  const auto device = make_backend();
  for (int i = 0; i < 10; ++i) device->enqueue(op::Fill{device->allocate(1, 1 << 20), 1});  // 4 MiB each
  const Tensor kept = device->allocate(1, 1 << 20);
  const std::string full = error_of([&] { device->allocate(1, 3 << 20); }, ErrorCode::kIo);
  EXPECT_NE(full.find("12.6 MB more are needed, but the device is full, with 4.2 MB in use by this program"),
            std::string::npos)
      << full;
}

TEST_F(CudaBackend, NoPageLockedMemory) {
  const auto device = make_backend();
  machine().page_locks = false;
  EXPECT_NE(error_of([&] { device->stage(10, 1000); }, ErrorCode::kIo).find("41.0 kB of page-locked memory"),
            std::string::npos);
}

TEST_F(CudaBackend, AnOperationThatCannotBeLaunchedIsNamedAtTheNextWait) {
  machine().fails_to_launch = "rms_norm";
  const auto device = make_backend();
  const Tensor t = counting(*device, 8);
  device->enqueue(op::RmsNorm{t, t, 1e-6f, t});
  device->enqueue(op::Scale{t, 2});
  const std::string text = error_of([&] { device->read<float>(t, "test"); }, ErrorCode::kInternal);
  EXPECT_EQ(text.find("device cuda: 'rms norm' failed: rms_norm_kernel: invalid argument"), 0u) << text;
  machine().fails_to_launch.clear();
  EXPECT_EQ(device->read<float>(counting(*device, 3), "test")[2], 2.0f);
}

TEST_F(CudaBackend, AFaultOfTheDeviceIsToldAtTheNextWait) {
  const auto device = make_backend();
  const Tensor t = counting(*device, 8);
  device->enqueue(op::Softcap{t, 1});
  device->wait(device->download(t), "test");
  machine().faults = "rms_norm";
  device->enqueue(op::Scale{t, 2});
  device->enqueue(op::RmsNorm{t, t, 1e-6f, t});
  const std::string text = error_of([&] { device->read<float>(t, "test"); }, ErrorCode::kInternal);
  EXPECT_NE(text.find("an illegal memory access was encountered"), std::string::npos) << text;
  EXPECT_NE(text.find("(not known to have ended: rms norm, scale)"), std::string::npos) << text;
}

TEST_F(CudaBackend, SpansCoverOperationsAndCopies) {
  Trace trace;
  const auto device = make_backend();
  device->trace_to(&trace);
  const int64_t begin = trace.now();
  const Tensor t = counting(*device, 30), h = device->allocate(30, 30);
  device->enqueue(op::Fill{h, 0});
  device->enqueue(op::AccumulateGram{t, {}, h});
  device->read<float>(h, "test");
  device->wait_all("test");
  std::vector<std::string> found;
  for (const Span& s : trace.spans()) {
    if (s.track == "waits") continue;
    found.push_back(std::string(s.track) + "/" + s.name);
    EXPECT_LE(begin - 1000000, s.begin_ns);
    EXPECT_LE(s.begin_ns, s.end_ns);
    EXPECT_LE(s.end_ns, trace.now() + 1000000);
    EXPECT_EQ(s.bytes, s.name == "upload" ? 120u : s.name == "download" ? 3600u : 0u);
    EXPECT_EQ(s.flops, s.name == "accumulate gram" ? 30.0 * 31 : 0.0);
  }
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, (std::vector<std::string>{"compute/accumulate gram", "compute/fill", "download/download",
                                             "upload/upload"}));
}

TEST_F(CudaBackend, OfEqualLogitsTheFirstIsTheLargest) {
  const auto device = make_backend();
  const std::vector<float> p = {5, 5, 1, 5, 5, 1}, q = {5, 4, 1, 4, 5, 1};
  const std::vector<int32_t> targets = {0, 0};
  const Tensor out = device->allocate(2, 4);
  device->enqueue(op::CompareLogits{device->upload(std::span<const float>(p), 2, 3),
                                    device->upload(std::span<const float>(q), 2, 3),
                                    device->upload(std::span<const int32_t>(targets), 2, 1), out});
  const std::vector<float> result = device->read<float>(out, "test");
  EXPECT_EQ(result[3], 1.0f);
  EXPECT_EQ(result[7], 0.0f);
}

// More rows than a grid has in one direction, and every operation that walks over them.
TEST_F(CudaBackend, MoreRowsThanAGrid) {
  const auto device = make_backend();
  constexpr size_t kRows = 70001;
  const Tensor column = device->allocate(kRows, 300).cols_slice(0, 300);
  device->enqueue(op::Fill{column, 1});
  const Tensor ones = device->allocate(kRows, 300);
  device->enqueue(op::Fill{ones, 1});
  device->enqueue(op::Add{ones, column});
  const std::vector<float> sums = device->read<float>(column, "test");
  EXPECT_TRUE(std::all_of(sums.begin(), sums.end(), [](float x) { return x == 2; }));
}

TEST_F(CudaBackend, ConversionsKeepEveryPattern) {
  const auto device = make_backend();
  std::vector<Half> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = Half(static_cast<uint16_t>(i));
  const Tensor f32 = device->allocate(256, 256), f16 = device->allocate(256, 256, DType::kF16),
               bf16 = device->allocate(256, 256, DType::kBF16);
  device->enqueue(op::Copy{device->upload(std::span<const Half>(halves), 256, 256), f32});
  device->enqueue(op::Copy{f32, f16});
  device->enqueue(op::Copy{f32, bf16});
  const auto floats = device->read<float>(f32, "test");
  const auto again = device->read<Half>(f16, "test");
  const auto short_floats = device->read<BFloat16>(bf16, "test");
  for (size_t i = 0; i < halves.size(); ++i) {
    const float wanted = to_float(halves[i]);
    ASSERT_EQ(std::memcmp(&floats[i], &wanted, sizeof(float)), 0) << i;
    ASSERT_EQ(again[i], to_half(wanted)) << i;
    ASSERT_EQ(short_floats[i], to_bfloat16(wanted)) << i;
  }
}

}  // namespace
}  // namespace bw::backend
