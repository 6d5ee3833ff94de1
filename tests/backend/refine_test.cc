// What RefineGroup refuses, and InverseFactor about the matrix that it works from.
#include "backend/testing.h"

namespace bw::backend {
namespace {

TEST(RefineGroup, RefusesWrongShapesAndTypes) {
  const auto device = make_cpu_backend(1);
  const auto matrix = [&](size_t rows, size_t cols, DType dtype = DType::kF32) {
    return device->allocate(rows, cols, dtype);
  };
  const op::RefineGroup right{matrix(4, 32),
                              matrix(4, 4),
                              matrix(1, 1, DType::kF16),
                              matrix(1, 32, DType::kU8),
                              3,
                              matrix(4, 32, DType::kU8),
                              matrix(4, 32),
                              matrix(1, 1, DType::kF64)};
  EXPECT_NO_THROW(right.check());
  const auto refuses_with = [&](auto&& change) {
    op::RefineGroup o = right;
    change(o);
    return refuses(*device, o);
  };
  EXPECT_TRUE(refuses_with([&](auto& o) { o.gradient = matrix(5, 32); }));
  EXPECT_TRUE(refuses_with([&](auto& o) { o.gradient = matrix(4, 64); }));
  EXPECT_TRUE(refuses_with([&](auto& o) { o.h = matrix(4, 5); }));
  EXPECT_TRUE(refuses_with([&](auto& o) { o.h = matrix(5, 5); }));
  EXPECT_TRUE(refuses_with([&](auto& o) { o.scale_max = matrix(1, 1); }));
  EXPECT_TRUE(refuses_with([&](auto& o) { o.scale_codes = matrix(1, 33, DType::kU8); }));
  EXPECT_TRUE(refuses_with([&](auto& o) { o.codes = matrix(4, 32); }));
  EXPECT_TRUE(refuses_with([&](auto& o) { o.codes = matrix(4, 64, DType::kU8); }));
  EXPECT_TRUE(refuses_with([&](auto& o) { o.error = matrix(3, 32); }));
  EXPECT_TRUE(refuses_with([&](auto& o) { o.sum = matrix(1, 1); }));
  for (const int bits : {1, 9}) EXPECT_TRUE(refuses_with([&](auto& o) { o.bits = bits; }));
}

TEST(RefineGroup, RefusesWhatIsNoGroup) {
  const auto device = make_cpu_backend(1);
  const auto group_of = [&](size_t n, size_t cols) {
    const auto codes = [&](size_t rows) { return device->allocate(rows, cols, DType::kU8); };
    return op::RefineGroup{device->allocate(n, cols),
                           device->allocate(n, n),
                           device->allocate(1, 1, DType::kF16),
                           codes(1),
                           4,
                           codes(n),
                           device->allocate(n, cols),
                           device->allocate(1, 1, DType::kF64)};
  };
  EXPECT_TRUE(refuses(*device, group_of(4, 33)));
  EXPECT_TRUE(refuses(*device, group_of(kMaxGroupRows + 1, 32)));
}

TEST(InverseFactor, RefusesAnOrderedMatrixOfAnotherShape) {
  const auto device = make_cpu_backend(1);
  const auto with = [&](const Tensor& ordered) {
    return op::InverseFactor{device->allocate(4, 4),
                             0.01f,
                             device->allocate(4, 4),
                             device->allocate(4, 1, DType::kI32),
                             device->allocate(4, 1),
                             device->allocate(1, 4, DType::kI32),
                             ordered};
  };
  EXPECT_NO_THROW(with({}).check());
  EXPECT_NO_THROW(with(device->allocate(4, 4)).check());
  EXPECT_TRUE(refuses(*device, with(device->allocate(4, 5))));
  EXPECT_TRUE(refuses(*device, with(device->allocate(5, 5))));
  EXPECT_TRUE(refuses(*device, with(device->allocate(4, 4, DType::kBF16))));
}

}  // namespace
}  // namespace bw::backend
