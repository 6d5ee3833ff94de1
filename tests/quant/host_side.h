// What quant has on the device, on the host's side: for tests that make it up or look at every element.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/matrix.h"
#include "base/rng.h"
#include "quant/gptq.h"
#include "support/devices.h"

namespace bw::quant {

// A test that every device must pass.
class OnDevice : public testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<backend::Backend> device_ = test::make_device(GetParam());
};

template <typename T>
backend::Tensor upload(backend::Backend& device, const Matrix<T>& m) {
  return device.upload(m.span(), m.rows(), m.cols());
}

// (values, 1)
template <typename T>
backend::Tensor upload(backend::Backend& device, const std::vector<T>& values) {
  return device.upload(std::span<const T>(values), values.size(), 1);
}

template <typename T>
Matrix<T> read_matrix(backend::Backend& device, const backend::Tensor& t) {
  const std::vector<T> values = device.read<T>(t, "test");
  Matrix<T> m(t.rows, t.cols);
  std::copy(values.begin(), values.end(), m.span().begin());
  return m;
}

template <typename T>
bool equal_bytes(const Matrix<T>& a, const Matrix<T>& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() &&
         (a.span().empty() || std::memcmp(a.data(), b.data(), a.span().size_bytes()) == 0);
}

struct HostFactor {
  FactorReport report;
  std::vector<int32_t> order;
  Matrix<float> u;
  std::vector<float> weights;

  uint32_t input(size_t row) const { return static_cast<uint32_t>(order[row]); }
};

// Throws what factor_report throws.
inline HostFactor read_factor(backend::Backend& device, const Factor& f, float damping, const std::string& name) {
  HostFactor host;
  host.report = factor_report(device.read<int32_t>(f.status, "test"), damping, name);
  host.order = device.read<int32_t>(f.order, "test");
  host.u = read_matrix<float>(device, f.u);
  host.weights = device.read<float>(f.weights, "test");
  return host;
}

inline HostFactor factorize_on(backend::Backend& device, const Matrix<float>& h, float damping,
                               const std::string& name = "test") {
  return read_factor(device, factorize(device, upload(device, h), damping), damping, name);
}

inline Factor upload(backend::Backend& device, const HostFactor& f) {
  return {upload(device, f.order), upload(device, f.u), upload(device, f.weights), {}, {}};
}

struct HostLinear {
  Layout layout;
  uint32_t in = 0, out = 0;
  std::vector<int32_t> order;
  Matrix<uint8_t> codes, scale_codes;
  std::vector<Half> scale_max;
  double error = 0;
};

inline HostLinear read_linear(backend::Backend& device, const QuantizedLinear& q) {
  return {q.layout,
          q.in,
          q.out,
          device.read<int32_t>(q.order, "test"),
          read_matrix<uint8_t>(device, q.codes),
          read_matrix<uint8_t>(device, q.scale_codes),
          device.read<Half>(q.scale_max, "test"),
          q.error.empty() ? 0 : device.read<double>(q.error, "test")[0]};
}

inline QuantizedLinear upload(backend::Backend& device, const HostLinear& q) {
  return {q.layout,
          q.in,
          q.out,
          upload(device, q.order),
          upload(device, q.codes),
          upload(device, q.scale_codes),
          upload(device, q.scale_max),
          {}};
}

// (out, in) as loaders compute it.
inline Matrix<float> dequantize_on(backend::Backend& device, const HostLinear& q) {
  return read_matrix<float>(device, dequantize(device, upload(device, q)));
}

inline void expect_same_bytes(const HostLinear& a, const HostLinear& b) {
  EXPECT_EQ(a.in, b.in);
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(a.order, b.order);
  EXPECT_TRUE(equal_bytes(a.codes, b.codes));
  EXPECT_TRUE(equal_bytes(a.scale_codes, b.scale_codes));
  EXPECT_EQ(a.scale_max, b.scale_max);
  EXPECT_EQ(a.error, b.error);
}

// Codes, scale codes, scales and an order at random for any layout.
inline HostLinear random_codes(const Layout& layout, uint32_t out, uint64_t seed) {
  Rng rng(seed);
  const std::vector<Group> groups = layout.groups();
  const uint32_t in = layout.rows();
  const size_t cols = (out + kColumnStep - 1) / kColumnStep * kColumnStep;
  HostLinear q{layout,
               in,
               out,
               std::vector<int32_t>(in),
               Matrix<uint8_t>(in, cols),
               Matrix<uint8_t>(groups.size(), cols),
               std::vector<Half>(groups.size()),
               0};
  std::iota(q.order.begin(), q.order.end(), 0);
  for (uint32_t i = in; i > 1; --i) std::swap(q.order[i - 1], q.order[rng.below(i)]);
  for (size_t g = 0; g < groups.size(); ++g) {
    q.scale_max[g] = Half(static_cast<uint16_t>(0x1400 + rng.below(0x2400)));
    for (size_t c = 0; c < cols; ++c) q.scale_codes(g, c) = static_cast<uint8_t>(rng.below(16));
    for (uint32_t r = groups[g].first; r < groups[g].first + groups[g].rows; ++r) {
      for (size_t c = 0; c < cols; ++c) q.codes(r, c) = static_cast<uint8_t>(rng.below(1u << groups[g].bits));
    }
  }
  return q;
}

}  // namespace bw::quant
