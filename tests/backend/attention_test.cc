#include "backend/testing.h"

namespace bw::backend {
namespace {

TEST(Attention, RefusesWrongShapes) {
  const auto device = make_cpu_backend(1);
  const AttentionShape shape{4, 2, 8, 1.0f, 0.0f, 0}, uneven{4, 3, 8, 1.0f, 0.0f, 0};
  const Tensor q = device->allocate(6, 32), out = device->allocate(6, 32), kv = device->allocate(6, 16);
  EXPECT_TRUE(refuses(*device, op::Attention{q, kv, kv, 4, shape, out}));
  EXPECT_TRUE(refuses(*device, op::Attention{q, kv, kv, 0, shape, out}));
  EXPECT_TRUE(refuses(*device, op::Attention{q, q, kv, 2, shape, out}));
  EXPECT_TRUE(refuses(*device, op::Attention{q, kv, kv, 2, uneven, out}));
  EXPECT_TRUE(refuses(*device, op::Attention{q, kv, kv, 2, shape, kv}));
}

TEST(AttentionCached, RefusesWrongShapes) {
  const auto device = make_cpu_backend(1);
  const AttentionShape shape{4, 2, 8, 1.0f, 0.0f, 0};
  const Tensor q = device->allocate(2, 32), out = device->allocate(2, 32), kv = device->allocate(6, 16);
  EXPECT_TRUE(refuses(*device, op::AttentionCached{q, kv, kv, 3, 4, shape, out}));
  EXPECT_TRUE(refuses(*device, op::AttentionCached{q, kv, kv, 3, 0, shape, out}));
  EXPECT_TRUE(refuses(*device, op::AttentionCached{q, kv, kv, 2, 2, shape, out}));
}

}  // namespace
}  // namespace bw::backend
