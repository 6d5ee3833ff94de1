#include "backend/testing.h"
#include "base/half.h"
#include "bitwright/error.h"

namespace bw::backend {
namespace {

const size_t kWidths[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 130, 1000};

double silu(double x) { return x / (1 + std::exp(-x)); }
double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

TEST(RmsNorm, MatchesTheFormulaForEveryWidth) {
  const auto device = make_cpu_backend(2);
  for_each_simd_target([&] {
    for (const size_t n : kWidths) {
      for (const size_t runs : {1, 3}) {
        const size_t rows = 5, cols = n * runs;
        const auto x = random_floats(rows * cols, n, 3.0f), w = random_floats(n, n + 1);
        const Tensor y = tensor_of(*device, random_floats(rows * cols, 9), rows, cols, 2);
        device->rms_norm(tensor_of(*device, x, rows, cols, 3), tensor_of(*device, w, 1, n), 1e-5f, y);
        std::vector<double> expected(rows * cols);
        for (size_t run = 0; run < rows * runs; ++run) {
          double mean = 0;
          for (size_t i = 0; i < n; ++i) mean += double{x[run * n + i]} * x[run * n + i] / static_cast<double>(n);
          for (size_t i = 0; i < n; ++i) expected[run * n + i] = x[run * n + i] / std::sqrt(mean + 1e-5f) * w[i];
        }
        EXPECT_LT(nmse(values_of(*device, y), expected), 1e-13) << n << " x " << runs;
      }
    }
  });
}

TEST(RmsNorm, MayWorkInPlaceAndStandsZeros) {
  const auto device = make_cpu_backend(1);
  const Tensor x = tensor_of(*device, std::vector<float>(4, 0.0f), 1, 4),
               w = tensor_of(*device, random_floats(4, 1), 1, 4);
  device->rms_norm(x, w, 1e-6f, x);
  EXPECT_EQ(values_of(*device, x), std::vector<float>(4, 0.0f));
}

TEST(RowSquaredNorms, SumsSquares) {
  const auto device = make_cpu_backend(2);
  for_each_simd_target([&] {
    for (const size_t n : kWidths) {
      const auto x = random_floats(3 * n, n);
      const Tensor out = device->allocate(3, 1);
      device->row_squared_norms(tensor_of(*device, x, 3, n, 1), out);
      std::vector<double> expected(3);
      for (size_t i = 0; i < 3 * n; ++i) expected[i / n] += double{x[i]} * x[i];
      EXPECT_LT(nmse(values_of(*device, out), expected), 1e-13) << n;
    }
  });
}

TEST(Activations, MatchTheirFormulas) {
  const auto device = make_cpu_backend(2);
  const std::pair<ActivationKind, double (*)(double)> kinds[] = {
      {ActivationKind::kSilu, silu}, {ActivationKind::kGelu, gelu}, {ActivationKind::kGeluTanh, gelu_tanh}};
  for_each_simd_target([&] {
    for (const auto& [kind, f] : kinds) {
      for (const size_t n : kWidths) {
        auto gate = random_floats(2 * n, n, 8.0f);
        const auto up = random_floats(2 * n, n + 1);
        gate[0] = -200.0f;  // exp(200) is not a float
        if (n > 1) gate[1] = 200.0f;
        const Tensor y = tensor_of(*device, gate, 2, n, 1);
        device->gated_activation(y, tensor_of(*device, up, 2, n, 2), kind, y);
        std::vector<double> expected(2 * n);
        for (size_t i = 0; i < 2 * n; ++i) expected[i] = f(gate[i]) * up[i];
        const auto got = values_of(*device, y);
        EXPECT_LT(nmse(got, expected), 1e-12) << static_cast<int>(kind) << " " << n;
        EXPECT_NEAR(got[0], 0.0, 1e-30);
      }
    }
  });
}

TEST(Softcap, FollowsTanhAndSaturates) {
  const auto device = make_cpu_backend(2);
  for_each_simd_target([&] {
    for (const size_t n : kWidths) {
      auto x = random_floats(n, n, 90.0f);
      x[0] = 1e6f;
      const Tensor t = tensor_of(*device, x, 1, n);
      device->softcap(t, 30.0f);
      std::vector<double> expected(n);
      for (size_t i = 0; i < n; ++i) expected[i] = 30.0 * std::tanh(x[i] / 30.0);
      EXPECT_LT(nmse(values_of(*device, t), expected), 1e-12) << n;
    }
  });
}

TEST(AddAndScale, Do) {
  const auto device = make_cpu_backend(2);
  for_each_simd_target([&] {
    for (const size_t n : kWidths) {
      const auto x = random_floats(3 * n, n), y = random_floats(3 * n, n + 1);
      const Tensor t = tensor_of(*device, y, 3, n, 1);
      device->add(tensor_of(*device, x, 3, n, 2), t);
      device->scale(t, 0.5f);
      const auto got = values_of(*device, t);
      for (size_t i = 0; i < 3 * n; ++i) ASSERT_EQ(got[i], (x[i] + y[i]) * 0.5f) << n;
    }
  });
}

TEST(Rope, RotatesPairsOfEveryHead) {
  const auto device = make_cpu_backend(2);
  for_each_simd_target([&] {
    for (const size_t d : {2, 6, 16, 34, 64, 256}) {
      const size_t heads = 3, rows = 4;
      const auto x = random_floats(rows * heads * d, d), table = random_floats(5 * d, d + 1);
      const std::vector<int32_t> positions = {4, 0, 2, 2};
      const Tensor t = tensor_of(*device, x, rows, heads * d, 1);
      device->rope(t, d, index_tensor(*device, positions), tensor_of(*device, table, 5, d));
      std::vector<double> expected(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        const size_t r = i / (heads * d), c = i % d;
        const bool second = c >= d / 2;
        const float* cs = &table[static_cast<size_t>(positions[r]) * d];
        const double cos = cs[c % (d / 2)], sin = cs[d / 2 + c % (d / 2)];
        expected[i] = second ? x[i] * cos + x[i - d / 2] * sin : x[i] * cos - x[i + d / 2] * sin;
      }
      EXPECT_LT(nmse(values_of(*device, t), expected), 1e-13) << d;
    }
  });
}

TEST(Rope, RefusesAPositionBeyondTheTable) {
  const auto device = make_cpu_backend(1);
  const Tensor x = device->allocate(1, 4), table = device->allocate(3, 4);
  EXPECT_THROW(device->rope(x, 4, index_tensor(*device, std::vector<int32_t>{3}), table), Error);
  EXPECT_THROW(device->rope(x, 4, index_tensor(*device, std::vector<int32_t>{-1}), table), Error);
}

TEST(Copy, ConvertsBetweenFloatTypesAsHalfDoes) {
  const auto device = make_cpu_backend(2);
  for_each_simd_target([&] {
    for (const size_t n : kWidths) {
      auto x = random_floats(2 * n, n, 70000.0f);
      x[0] = std::nanf("");
      x[1 % (2 * n)] = 1e-41f;
      x[2 % (2 * n)] = INFINITY;
      x[3 % (2 * n)] = 1.00390625f;  // a tie between two bfloat16 numbers
      const Tensor f = tensor_of(*device, x, 2, n, 3), b = device->allocate(2, n, DType::kBF16);
      const Tensor h = device->allocate(2, n, DType::kF16), back = device->allocate(2, n);
      device->copy(f, b);
      device->copy(b, back);
      const auto from_b = values_of(*device, back), direct = values_of(*device, b);
      device->copy(f, h);
      device->copy(h, back);
      const auto from_h = values_of(*device, back);
      for (size_t i = 0; i < 2 * n; ++i) {
        const float as_b = to_float(to_bfloat16(x[i])), as_h = round_to_half(x[i]);
        ASSERT_TRUE(from_b[i] == as_b || (std::isnan(from_b[i]) && std::isnan(as_b))) << i << " " << x[i];
        ASSERT_TRUE(direct[i] == as_b || std::isnan(as_b));
        ASSERT_TRUE(from_h[i] == as_h || (std::isnan(from_h[i]) && std::isnan(as_h))) << i << " " << x[i];
      }
    }
  });
}

TEST(Elementwise, EmptyTensorsAreFine) {
  const auto device = make_cpu_backend(2);
  const Tensor x = device->allocate(0, 8), w = tensor_of(*device, random_floats(8, 1), 1, 8);
  device->rms_norm(x, w, 1e-5f, x);
  device->add(x, x);
  device->scale(x, 2.0f);
  device->gated_activation(x, x, ActivationKind::kSilu, x);
  device->softcap(x, 1.0f);
  device->fill(x, 1.0f);
  device->copy(x, x);
  device->rope(x, 8, device->allocate(0, 1, DType::kI32), device->allocate(4, 8));
  device->row_squared_norms(x, device->allocate(0, 1));
  EXPECT_TRUE(values_of(*device, x).empty());
}

TEST(Elementwise, WrongShapesAndTypesAreRefused) {
  const auto device = make_cpu_backend(1);
  const Tensor a = device->allocate(2, 4), b = device->allocate(2, 5), bf = device->allocate(2, 4, DType::kBF16);
  EXPECT_THROW(device->add(a, b), Error);
  EXPECT_THROW(device->add(a, bf), Error);
  EXPECT_THROW(device->rms_norm(a, device->allocate(1, 3), 1e-5f, a), Error);
  EXPECT_THROW(device->gated_activation(a, b, ActivationKind::kSilu, a), Error);
  EXPECT_THROW(device->upload(a, random_floats(7, 1)), Error);
  EXPECT_THROW(a.rows_slice(1, 2), Error);
  EXPECT_THROW(a.cols_slice(5, 0), Error);
  Tensor beyond = a;
  beyond.rows = 3;
  EXPECT_THROW(device->fill(beyond, 0.0f), Error);
  std::vector<float> few(7);
  EXPECT_THROW(device->read(a, few, "test"), Error);
}

TEST(Counters, CountWhatCrosses) {
  const auto device = make_cpu_backend(1);
  const Tensor a = tensor_of(*device, random_floats(6, 1), 2, 3);
  device->reset_counters();
  device->upload(a, random_floats(6, 2));
  device->scale(a, 2.0f);
  values_of(*device, a);
  device->wait("test");
  const Counters& c = device->counters();
  EXPECT_EQ(c.uploads, 1u);
  EXPECT_EQ(c.upload_bytes, 24u);
  EXPECT_EQ(c.launches, 1u);
  EXPECT_EQ(c.reads, 1u);
  EXPECT_EQ(c.read_bytes, 24u);
  EXPECT_EQ(c.waits, 2u);
}

}  // namespace
}  // namespace bw::backend
