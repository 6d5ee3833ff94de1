#include "backend/testing.h"

#include "backend/cpu/cpu_backend.h"
#include "base/half.h"
#include "bitwright/error.h"

namespace bw::backend {
namespace {

// Operand as the precision rounds it.
float rounded(float x, Precision p) { return p == Precision::kBF16 ? to_float(to_bfloat16(x)) : x; }

std::vector<double> product(std::span<const float> a, bool ta, std::span<const float> b, bool tb, size_t m, size_t n,
                            size_t k, Precision p) {
  std::vector<double> c(m * n);
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t l = 0; l < k; ++l) {
        sum += double{rounded(ta ? a[l * m + i] : a[i * k + l], p)} * rounded(tb ? b[j * k + l] : b[l * n + j], p);
      }
      c[i * n + j] = sum;
    }
  }
  return c;
}

struct Shape {
  size_t m, n, k;
};
const Shape kShapes[] = {{1, 1, 1},     {1, 7, 3},      {2, 64, 64},    {3, 65, 33},    {5, 129, 127}, {64, 128, 96},
                         {257, 96, 40}, {255, 300, 17}, {300, 257, 65}, {513, 40, 129}, {33, 1100, 64}};

// Backends with every way of multiplying: bfloat16 hardware as it is here, and none.
std::vector<std::unique_ptr<Backend>> devices() {
  std::vector<std::unique_ptr<Backend>> all;
  all.push_back(make_cpu_backend(2));
  if (all[0]->multiplies_bf16()) all.push_back(std::make_unique<cpu::CpuBackend>(2, false));
  return all;
}

TEST(Linear, MatchesTheReference) {
  for (const auto& device : devices()) {
    for (const Precision p : {Precision::kF32, Precision::kBF16}) {
      for (const auto& [m, n, k] : kShapes) {
        const auto x = random_floats(m * k, 1), w = random_floats(n * k, 2), b = random_floats(n, 3),
                   y = random_floats(m * n, 4);
        const auto weight = device->prepare_weight(w, n, k, p);
        EXPECT_EQ(weight->in(), k);
        EXPECT_EQ(weight->out(), n);
        const Tensor tx = tensor_of(*device, x, m, k, 3), tb = tensor_of(*device, b, 1, n);
        const auto plain = product(x, false, w, true, m, n, k, p);
        for (const bool bias : {false, true}) {
          for (const bool accumulate : {false, true}) {
            const Tensor ty = tensor_of(*device, y, m, n, 5);
            device->linear(tx, *weight, bias ? &tb : nullptr, ty, accumulate);
            auto expected = plain;
            for (size_t i = 0; i < m * n; ++i) expected[i] += (bias ? b[i % n] : 0.0f) + (accumulate ? y[i] : 0.0f);
            EXPECT_LT(nmse(values_of(*device, ty), expected), 1e-12)
                << m << " " << n << " " << k << " bias " << bias << " accumulate " << accumulate;
          }
        }
      }
    }
  }
}

TEST(Linear, ManyRowsGoThroughInChunks) {
  const auto device = make_cpu_backend(2);
  const size_t m = 4500, n = 33, k = 20;
  const auto x = random_floats(m * k, 1), w = random_floats(n * k, 2);
  for (const Precision p : {Precision::kF32, Precision::kBF16}) {
    const Tensor y = device->allocate(m, n);
    device->linear(tensor_of(*device, x, m, k), *device->prepare_weight(w, n, k, p), nullptr, y);
    EXPECT_LT(nmse(values_of(*device, y), product(x, false, w, true, m, n, k, p)), 1e-12);
  }
}

TEST(Linear, AutoIsBf16OnlyInHardware) {
  for (const auto& device : devices()) {
    const size_t n = 32, k = 64;
    const auto x = random_floats(k, 1), w = random_floats(n * k, 2);
    const Tensor y = device->allocate(1, n);
    device->linear(tensor_of(*device, x, 1, k), *device->prepare_weight(w, n, k, Precision::kAuto), nullptr, y);
    const Precision p = device->multiplies_bf16() ? Precision::kBF16 : Precision::kF32;
    EXPECT_LT(nmse(values_of(*device, y), product(x, false, w, true, 1, n, k, p)), 1e-12);
  }
}

TEST(Linear, EmptyAndWrongShapes) {
  const auto device = make_cpu_backend(1);
  const auto weight = device->prepare_weight(random_floats(12, 1), 3, 4, Precision::kF32);
  device->linear(device->allocate(0, 4), *weight, nullptr, device->allocate(0, 3));
  EXPECT_THROW(device->linear(device->allocate(2, 5), *weight, nullptr, device->allocate(2, 3)), Error);
  EXPECT_THROW(device->linear(device->allocate(2, 4), *weight, nullptr, device->allocate(1, 3)), Error);
  const Tensor bias = device->allocate(1, 4);
  EXPECT_THROW(device->linear(device->allocate(2, 4), *weight, &bias, device->allocate(2, 3)), Error);
  EXPECT_THROW(device->prepare_weight(random_floats(11, 1), 3, 4, Precision::kF32), Error);
}

TEST(Gemm, MatchesTheReferenceInEveryOrientation) {
  for (const auto& device : devices()) {
    for (const Precision p : {Precision::kF32, Precision::kBF16}) {
      for (const auto& [m, n, k] : kShapes) {
        for (int orientation = 0; orientation < 4; ++orientation) {
          const bool ta = (orientation & 1) != 0, tb = (orientation & 2) != 0;
          const auto a = random_floats(m * k, 1), b = random_floats(n * k, 2), c = random_floats(m * n, 3);
          const Tensor t_a = tensor_of(*device, a, ta ? k : m, ta ? m : k, 3),
                       t_b = tensor_of(*device, b, tb ? n : k, tb ? k : n, 1);
          const Tensor sum = tensor_of(*device, c, m, n, 2), fresh = device->allocate(m, n);
          device->fill(fresh, std::nanf(""));  // beta 0 must not read it
          device->gemm(t_a, ta, t_b, tb, sum, -0.5f, 2.0f, p);
          device->gemm(t_a, ta, t_b, tb, fresh, 1.0f, 0.0f, p);
          const auto plain = product(a, ta, b, tb, m, n, k, p);
          auto expected = plain;
          for (size_t i = 0; i < m * n; ++i) expected[i] = -0.5 * expected[i] + 2.0 * c[i];
          EXPECT_LT(nmse(values_of(*device, sum), expected), 1e-12) << m << " " << n << " " << k << " " << orientation;
          EXPECT_LT(nmse(values_of(*device, fresh), plain), 1e-12) << m << " " << n << " " << k << " " << orientation;
        }
      }
    }
  }
}

TEST(Gemm, OverNoInnerElementsOnlyScales) {
  const auto device = make_cpu_backend(1);
  const Tensor c = tensor_of(*device, std::vector<float>{1, 2}, 1, 2);
  device->gemm(device->allocate(1, 0), false, device->allocate(0, 2), false, c, 1.0f, 3.0f, Precision::kF32);
  EXPECT_EQ(values_of(*device, c), (std::vector<float>{3, 6}));
  device->gemm(device->allocate(1, 0), false, device->allocate(0, 2), false, c, 1.0f, 0.0f, Precision::kF32);
  EXPECT_EQ(values_of(*device, c), (std::vector<float>{0, 0}));
  EXPECT_THROW(device->gemm(c, false, c, false, c, 1.0f, 0.0f, Precision::kF32), Error);
}

TEST(Gram, AddsTheUpperTriangle) {
  for (const auto& device : devices()) {
    for (const Precision p : {Precision::kF32, Precision::kBF16}) {
      for (const auto& [tokens, n] :
           {std::pair<size_t, size_t>{1, 1}, {3, 5}, {17, 64}, {1025, 33}, {40, 257}, {130, 400}}) {
        for (const bool weighted : {false, true}) {
          const auto x = random_floats(tokens * n, 1), w = random_floats(tokens, 2), h0 = random_floats(n * n, 3);
          const Tensor h = tensor_of(*device, h0, n, n), tw = tensor_of(*device, w, tokens, 1, 1);
          device->accumulate_gram(tensor_of(*device, x, tokens, n, 2), weighted ? &tw : nullptr, h, p);
          const auto all = values_of(*device, h);
          std::vector<float> got;
          std::vector<double> expected;
          for (size_t i = 0; i < n; ++i) {
            for (size_t j = i; j < n; ++j) {
              double sum = h0[i * n + j];
              for (size_t t = 0; t < tokens; ++t) {
                const float right = weighted ? x[t * n + j] * w[t] : x[t * n + j];
                sum += double{rounded(x[t * n + i], p)} * rounded(right, p);
              }
              got.push_back(all[i * n + j]);
              expected.push_back(sum);
            }
          }
          EXPECT_LT(nmse(got, expected), 1e-12) << tokens << " " << n << " " << weighted;
        }
      }
    }
  }
}

TEST(MatrixProducts, AreTheSameBytesAtAnyThreadCount) {
  for (const Precision p : {Precision::kF32, Precision::kBF16}) {
    for (const size_t m : {40, 700, 2300}) {  // few rows, and enough for whole rows as tasks
      const size_t n = 520, k = 300;
      const auto x = random_floats(m * k, 1), w = random_floats(n * k, 2);
      expect_same_at_any_thread_count([&](Backend& device) {
        const Tensor y = device.allocate(m, n), z = device.allocate(m, n), h = device.allocate(k, k);
        const Tensor tx = tensor_of(device, x, m, k);
        device.linear(tx, *device.prepare_weight(w, n, k, p), nullptr, y);
        device.gemm(tx, false, tensor_of(device, w, n, k), true, z, 1.0f, 0.0f, p);
        device.fill(h, 0.0f);
        device.accumulate_gram(tx, nullptr, h, p);
        auto all = values_of(device, y);
        for (const Tensor& t : {z, h}) {
          const auto more = values_of(device, t);
          all.insert(all.end(), more.begin(), more.end());
        }
        return all;
      });
    }
  }
}

TEST(MatrixProducts, AreCounted) {
  const auto device = make_cpu_backend(1);
  const auto weight = device->prepare_weight(random_floats(12, 1), 3, 4, Precision::kF32);
  device->reset_counters();
  device->linear(tensor_of(*device, random_floats(8, 1), 2, 4), *weight, nullptr, device->allocate(2, 3));
  EXPECT_EQ(device->counters().gemm_flops, 2.0 * 2 * 3 * 4);
}

}  // namespace
}  // namespace bw::backend
