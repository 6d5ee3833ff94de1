#include "backend/cases/place.h"
#include "backend/testing.h"

namespace bw::backend {
namespace {

TEST(Rope, RefusesAPositionBeyondTheTable) {
  for (const TestDevice& entry : usable_devices()) {
    if (!entry.checks_indices) continue;
    for (const int32_t position : {3, -1}) {
      const auto device = entry.make();
      const Tensor x = device->allocate(1, 4), table = device->allocate(3, 4);
      device->enqueue(op::Fill{x, 1.0f});
      device->enqueue(op::Fill{table, 1.0f});
      const Tensor positions = device->upload<int32_t>(std::vector<int32_t>{position}, 1, 1);
      EXPECT_TRUE(refuses(*device, op::Rope{x, 4, positions, table})) << entry.name;
    }
  }
}

TEST(Elementwise, RefusesWrongShapesAndTypes) {
  const auto device = make_cpu_backend(1);
  const Tensor a = device->allocate(2, 4), b = device->allocate(2, 5), bf = device->allocate(2, 4, DType::kBF16);
  const Tensor column = device->allocate(2, 1), sum = device->allocate(1, 1, DType::kF64);
  EXPECT_TRUE(refuses(*device, op::Add{a, b}));
  EXPECT_TRUE(refuses(*device, op::Add{a, bf}));
  EXPECT_TRUE(refuses(*device, op::Scale{bf, 1.0f}));
  EXPECT_TRUE(refuses(*device, op::Softcap{a, 0.0f}));
  EXPECT_TRUE(refuses(*device, op::RmsNorm{a, device->allocate(1, 3), 1e-5f, a}));
  EXPECT_TRUE(refuses(*device, op::GatedActivation{a, b, ActivationKind::kSilu, a}));
  EXPECT_TRUE(refuses(*device, op::RowSquaredNorms{a, b, column}));
  EXPECT_TRUE(refuses(*device, op::RowSquaredNorms{a, {}, sum}));
  EXPECT_TRUE(refuses(*device, op::WeightedDifference{a, b, column, a}));
  EXPECT_TRUE(refuses(*device, op::WeightedDifference{a, a, a, a}));
  EXPECT_TRUE(refuses(*device, op::WeightedDifference{a, a, {}, a}));
  EXPECT_TRUE(refuses(*device, op::WeightedDifference{a, a, column, b}));
  EXPECT_TRUE(refuses(*device, op::WeightedDifference{a, bf, column, a}));
  EXPECT_TRUE(refuses(*device, op::RowRatios{a, column, column, {}}));
  EXPECT_TRUE(refuses(*device, op::RowRatios{{}, column, column, column}));
  EXPECT_TRUE(refuses(*device, op::LargestMagnitude{bf, device->allocate(1, 1)}));
  EXPECT_TRUE(refuses(*device, op::LargestMagnitude{a, column}));
  EXPECT_TRUE(refuses(*device, op::Fill{bf, 1.0f}));
  EXPECT_TRUE(refuses(*device, op::Copy{a, b}));
  EXPECT_TRUE(refuses(*device, op::Copy{a, device->allocate(2, 4, DType::kI32)}));
}

TEST(Tensors, StayInsideTheirMemory) {
  for (const TestDevice& entry : usable_devices()) {
    const auto device = entry.make();
    const Tensor a = device->allocate(2, 4);
    EXPECT_THROW(a.rows_slice(1, 2), Error);
    EXPECT_THROW(a.cols_slice(5, 0), Error);
    Tensor beyond = a;
    beyond.rows = 3;
    EXPECT_TRUE(refuses(*device, op::Fill{beyond, 0.0f}));
    EXPECT_THROW(device->download(beyond), Error);
    EXPECT_THROW(device->upload<float>(std::vector<float>(7), 2, 4), Error);
    EXPECT_THROW(device->read<int32_t>(a, "test"), Error);
  }
}

TEST(Counters, CountWhatCrosses) {
  for (const TestDevice& entry : usable_devices()) {
    const auto device = entry.make();
    const Tensor a = device->upload<float>(conformance::random_floats(6, 1), 2, 3);
    EXPECT_EQ(device->counters().uploads, 1u);
    EXPECT_EQ(device->counters().upload_bytes, 24u);
    device->enqueue(op::Scale{a, 2.0f});
    EXPECT_EQ(device->counters().launches, 1u);
    EXPECT_EQ(device->counters().waits, 0u);
    const HostTensor copy = device->download(a);
    EXPECT_EQ(device->counters().downloads, 1u);
    EXPECT_EQ(device->counters().download_bytes, 24u);
    EXPECT_THROW(copy.as<float>(), Error) << "nobody has waited yet";
    device->wait(copy, "test");
    device->wait(copy, "test");  // known to have passed
    EXPECT_EQ(device->counters().waits, 1u);
    EXPECT_EQ(copy.as<float>()[5], 2 * conformance::random_floats(6, 1)[5]);
    device->wait_all("test");
    EXPECT_EQ(device->counters().launches, 1u);
  }
}

}  // namespace
}  // namespace bw::backend
