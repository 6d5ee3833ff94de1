#include "backend/cases/place.h"
#include "backend/cases/products.h"
#include "backend/testing.h"

namespace bw::backend {
namespace {

using namespace conformance;

TEST(Linear, AutoIsBf16OnlyInHardware) {
  for (const TestDevice& entry : usable_devices()) {
    const auto device = entry.make();
    const Case automatic = linear_case({3, 32, 64}, Precision::kAuto, true, false);
    const Precision meant = device->multiplies_bf16() ? Precision::kBF16 : Precision::kF32;
    const Expectation expectation = linear_case({3, 32, 64}, meant, true, false).reference(automatic.operands);
    const Placed placed(*device, automatic.operands);
    device->enqueue(automatic.op(*device, placed.tensors()));
    std::string fault;
    EXPECT_EQ(expectation(placed.operands_in(placed.read(), fault)), "") << entry.name;
    EXPECT_EQ(fault, "");
  }
}

TEST(Linear, RefusesWrongShapes) {
  const auto device = make_cpu_backend(1);
  const Tensor w = device->upload<float>(random_floats(12, 1), 3, 4);
  const auto weight = device->pack_weight(w, Precision::kF32);
  EXPECT_EQ(weight->in(), 4u);
  EXPECT_EQ(weight->out(), 3u);
  const Tensor x = device->allocate(2, 4), y = device->allocate(2, 3);
  EXPECT_TRUE(refuses(*device, op::Linear{device->allocate(2, 5), weight, {}, y}));
  EXPECT_TRUE(refuses(*device, op::Linear{x, weight, {}, device->allocate(1, 3)}));
  EXPECT_TRUE(refuses(*device, op::Linear{x, weight, device->allocate(1, 4), y}));
  EXPECT_TRUE(refuses(*device, op::Linear{x, nullptr, {}, y}));
  EXPECT_THROW(device->pack_weight(device->allocate(3, 4, DType::kBF16), Precision::kF32), Error);
}

TEST(Gemm, RefusesWrongShapes) {
  const auto device = make_cpu_backend(1);
  const Tensor a = device->allocate(1, 2), c = device->allocate(1, 2), d = device->allocate(2, 2);
  EXPECT_TRUE(refuses(*device, op::Gemm{a, false, a, false, c}));
  EXPECT_TRUE(refuses(*device, op::Gemm{a, false, d, false, d}));
  EXPECT_TRUE(refuses(*device, op::AccumulateGram{a, {}, a}));
  EXPECT_TRUE(refuses(*device, op::AccumulateGram{a, device->allocate(2, 1), d}));
}

TEST(MatrixProducts, AreCounted) {
  for (const TestDevice& entry : usable_devices()) {
    const auto device = entry.make();
    const auto weight = device->pack_weight(device->upload<float>(random_floats(12, 1), 3, 4), Precision::kF32);
    EXPECT_EQ(device->counters().gemm_flops, 0);
    const Tensor x = device->upload<float>(random_floats(8, 1), 2, 4);
    device->enqueue(op::Linear{x, weight, {}, device->allocate(2, 3)});
    EXPECT_EQ(device->counters().gemm_flops, 2.0 * 2 * 3 * 4);
    EXPECT_EQ(device->counters().linear_flops, 2.0 * 2 * 3 * 4);
    EXPECT_EQ(device->counters().launches, 2u);
    device->wait_all("test");
  }
}

}  // namespace
}  // namespace bw::backend
