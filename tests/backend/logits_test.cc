#include "backend/cases/case.h"
#include "backend/testing.h"

namespace bw::backend {
namespace {

TEST(Logits, RefuseATargetOutsideTheVocabulary) {
  for (const TestDevice& entry : usable_devices()) {
    if (!entry.checks_indices) continue;
    for (const int32_t target : {4, -1}) {
      for (const bool compare : {false, true}) {
        const auto device = entry.make();
        const Tensor x = device->upload<float>(conformance::random_floats(4, 1), 1, 4);
        const Tensor targets = device->upload<int32_t>(std::vector<int32_t>{target}, 1, 1);
        const bool refused = compare ? refuses(*device, op::CompareLogits{x, x, targets, device->allocate(1, 4)})
                                     : refuses(*device, op::TokenNll{x, targets, device->allocate(1, 1)});
        EXPECT_TRUE(refused) << entry.name << " " << target;
      }
    }
  }
}

TEST(Logits, RefuseWrongShapes) {
  const auto device = make_cpu_backend(1);
  const Tensor x = device->allocate(2, 4), targets = device->allocate(2, 1, DType::kI32);
  EXPECT_TRUE(refuses(*device, op::TokenNll{x, device->allocate(2, 1), device->allocate(2, 1)}));
  EXPECT_TRUE(refuses(*device, op::TokenNll{x, targets, device->allocate(1, 1)}));
  EXPECT_TRUE(refuses(*device, op::TokenNll{device->allocate(2, 0), targets, device->allocate(2, 1)}));
  EXPECT_TRUE(refuses(*device, op::CompareLogits{x, device->allocate(2, 3), targets, device->allocate(2, 4)}));
  EXPECT_TRUE(refuses(*device, op::CompareLogits{x, x, targets, device->allocate(2, 3)}));
}

TEST(Logits, ATokenThatCannotBeAddsNothingToTheDivergence) {
  for (const TestDevice& entry : usable_devices()) {
    const auto device = entry.make();
    for (const size_t n : {size_t{5}, size_t{40}}) {  // fewer and more than a vector
      std::vector<float> p(n, 0.0f), q(n, 0.0f);
      p[2] = q[2] = -INFINITY;  // for both
      p[3] = -INFINITY;         // for p alone: q wastes a share of 1 / (n - 1) on it
      const Tensor targets = device->upload<int32_t>(std::vector<int32_t>{0}, 1, 1), out = device->allocate(1, 4);
      device->enqueue(op::CompareLogits{device->upload<float>(p, 1, n), device->upload<float>(q, 1, n), targets, out});
      const auto values = device->read<float>(out, "test");
      const double expected = std::log(static_cast<double>(n - 1) / static_cast<double>(n - 2));
      EXPECT_NEAR(values[0], expected, 1e-6) << entry.name << " " << n;
    }
  }
}

}  // namespace
}  // namespace bw::backend
