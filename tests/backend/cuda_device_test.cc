// The cuda device on the machine at hand. What its operations do is in conformance_test.cc, and what it does about
// trouble, on a machine that has it, in cuda_backend_test.cc.
#include <gtest/gtest.h>

#ifdef BW_CUDA
#include "backend/cuda/cuda_backend.h"
#include "bitwright/error.h"
#endif

namespace bw::backend {
namespace {

#ifdef BW_CUDA

// The device, or why there is none.
std::pair<std::unique_ptr<Backend>, std::string> cuda_device() {
  try {
    return {make_cuda_backend({}), ""};
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage) << e.what();
    return {nullptr, e.what()};
  }
}

TEST(CudaDevice, SaysWhyItCannotBeUsed) {
  const auto [device, why] = cuda_device();
  if (device) GTEST_SKIP() << "it can be used here";
  EXPECT_EQ(why.find("device cuda: "), 0u) << why;
  EXPECT_NE(why.find("; run with --device cpu, or "), std::string::npos) << why;
}

TEST(CudaDevice, TakesBytesThereAndBack) {
  const auto [device, why] = cuda_device();
  if (!device) GTEST_SKIP() << why;
  std::vector<float> data(100003);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  for (int round = 0; round < 20; ++round) {
    const Tensor t = device->upload(std::span<const float>(data), 1, data.size());
    device->enqueue(op::Add{t, t});
    for (float& x : data) x += x;
    EXPECT_EQ(device->read<float>(t, "test"), data);
  }
}

TEST(CudaDevice, UsesMemoryAgain) {
  const auto [device, why] = cuda_device();
  if (!device) GTEST_SKIP() << why;
  for (int round = 0; round < 2000; ++round) device->enqueue(op::Fill{device->allocate(1024, 65536), 1});
  device->wait_all("test");
  EXPECT_EQ(device->counters().most_device_bytes, size_t{1024} * 65536 * sizeof(float));
}

TEST(CudaDevice, KeepsToItsMemoryLimit) {
  if (const auto [device, why] = cuda_device(); !device) GTEST_SKIP() << why;
  const auto device = make_cuda_backend({.memory_limit = 1 << 20});
  const Tensor half = device->allocate(1, 1 << 17);
  EXPECT_THROW(device->allocate(1, (1 << 17) + 1), Error);
  device->allocate(1, 1 << 17);
}

#else

TEST(CudaDevice, IsNotPartOfThisBuild) { GTEST_SKIP() << "configure with --preset cuda"; }

#endif

}  // namespace
}  // namespace bw::backend
