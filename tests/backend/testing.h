// What the conformance tests of a backend share: random tensors, error norms, and the Highway targets of this
// processor.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "base/rng.h"
#include "hwy/highway.h"

namespace bw::backend {

inline std::vector<float> random_floats(size_t n, uint64_t seed, float spread = 1.0f) {
  Rng rng(seed);
  std::vector<float> v(n);
  for (float& x : v) x = spread * (2.0f * rng.next_float() - 1.0f);
  return v;
}

// A tensor with the given elements, whose rows are `padding` elements further apart than they are long; the padding is
// NaN, so that reading it shows.
inline Tensor tensor_of(Backend& device, std::span<const float> data, size_t rows, size_t cols, size_t padding = 0) {
  const Tensor whole = device.allocate(rows, cols + padding);
  device.fill(whole, std::nanf(""));
  const Tensor t = whole.cols_slice(0, cols);
  device.upload(t, data);
  return t;
}

inline Tensor index_tensor(Backend& device, std::span<const int32_t> data) {
  const Tensor t = device.allocate(data.size(), 1, DType::kI32);
  device.upload(t, data);
  return t;
}

inline std::vector<float> values_of(Backend& device, const Tensor& t) {
  std::vector<float> v(t.rows * t.cols);
  device.read(t, v, "test");
  return v;
}

// Σ (x - y)² / Σ y²: the error's share of the energy. NaN, and thus never below a bound, if x holds one.
inline double nmse(std::span<const float> x, std::span<const double> y) {
  EXPECT_EQ(x.size(), y.size());
  double error = 0, energy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (x[i] - y[i]) * (x[i] - y[i]);
    energy += y[i] * y[i];
  }
  return energy > 0 ? error / energy : error;
}

// Runs the body under every instruction set that this processor and this build have.
inline void for_each_simd_target(const std::function<void()>& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

// Results of `work` on backends of 1, 2 and 3 threads must be the same bytes.
inline void expect_same_at_any_thread_count(const std::function<std::vector<float>(Backend&)>& work) {
  const auto one = work(*make_cpu_backend(1));
  for (const size_t threads : {2, 3}) {
    const auto device = make_cpu_backend(threads);
    const auto other = work(*device);
    ASSERT_EQ(one.size(), other.size());
    EXPECT_EQ(0, std::memcmp(one.data(), other.data(), one.size() * sizeof(float))) << threads << " threads";
  }
}

}  // namespace bw::backend
