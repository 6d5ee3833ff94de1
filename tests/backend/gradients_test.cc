// The gradients against central differences of their operations' results, in double on tiny shapes; and what they
// refuse. How exact they are at all sizes is in conformance_test.cc.
#include "backend/cases/gradients.h"
#include "backend/testing.h"

namespace bw::backend {
namespace {

using namespace conformance;
using Values = std::vector<double>;
using Loss = std::function<double(const Values&)>;

// Of a loss at x. The error is of the order of step², and of 1e-16 / step.
Values central_differences(const Loss& loss, Values x) {
  constexpr double kStep = 1e-5;
  Values slopes;
  for (double& value : x) {
    const double middle = value;
    value = middle + kStep;
    const double above = loss(x);
    value = middle - kStep;
    slopes.push_back((above - loss(x)) / (2 * kStep));
    value = middle;
  }
  return slopes;
}

Values doubles(const std::vector<float>& x) { return {x.begin(), x.end()}; }

void expect_gradient(Backend& device, const Tensor& gradient, const Loss& loss, const std::vector<float>& x) {
  const Values wanted = central_differences(loss, doubles(x));
  const std::vector<float> got = device.read<float>(gradient, "test");
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 3e-6 * (1 + std::abs(wanted[i]))) << i;
}

double sum_of_products(const Values& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Tensor uploaded(Backend& device, const std::vector<float>& x, size_t rows) {
  return device.upload<float>(x, rows, x.size() / rows);
}

TEST(RmsNormGradient, IsTheSlope) {
  constexpr size_t kRows = 3, kRun = 5, kCols = 2 * kRun;
  const auto device = make_cpu_backend(1);
  const auto x = random_floats(kRows * kCols, 1, 2.0f), w = random_floats(kRun, 2), dy = random_floats(x.size(), 3);
  const Loss loss = [&](const Values& at) {
    Values y(at.size());
    for (size_t i = 0; i < y.size(); ++i) {
      const double* run = &at[i / kRun * kRun];
      y[i] = at[i] / std::sqrt(std::inner_product(run, run + kRun, run, 0.0) / kRun + 1e-3f) * w[i % kRun];
    }
    return sum_of_products(y, dy);
  };
  const Tensor dx = device->allocate(kRows, kCols);
  device->enqueue(op::RmsNormGradient{uploaded(*device, x, kRows), uploaded(*device, w, 1), 1e-3f,
                                      uploaded(*device, dy, kRows), dx});
  expect_gradient(*device, dx, loss, x);
}

TEST(GatedActivationGradient, IsTheSlope) {
  constexpr size_t kRows = 2, kCols = 9;
  const auto gate = random_floats(kRows * kCols, 1, 4.0f), up = random_floats(gate.size(), 2),
             dy = random_floats(gate.size(), 3);
  for (const ActivationKind kind : {ActivationKind::kSilu, ActivationKind::kGelu, ActivationKind::kGeluTanh}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const auto device = make_cpu_backend(1);
    const auto loss = [&](const Values& gate_at, const Values& up_at) {
      Values y(gate_at.size());
      for (size_t i = 0; i < y.size(); ++i) y[i] = activated(gate_at[i], kind) * up_at[i];
      return sum_of_products(y, dy);
    };
    const Tensor dgate = device->allocate(kRows, kCols), dup = device->allocate(kRows, kCols);
    device->enqueue(op::GatedActivationGradient{uploaded(*device, gate, kRows), uploaded(*device, up, kRows), kind,
                                                uploaded(*device, dy, kRows), dgate, dup});
    expect_gradient(
        *device, dgate, [&](const Values& at) { return loss(at, doubles(up)); }, gate);
    expect_gradient(
        *device, dup, [&](const Values& at) { return loss(doubles(gate), at); }, up);
  }
}

// Attention of one sequence.
Values attended(const AttentionSize& a, const Values& q, const Values& k, const Values& v) {
  const size_t d = a.head_dim;
  Values out(q.size());
  for (size_t row = 0; row < a.length * a.heads; ++row) {
    const size_t position = row / a.heads, head = row % a.heads / (a.heads / a.kv_heads);
    double total = 0;
    for (size_t key = 0; key <= position; ++key) {
      if (a.window != 0 && key + a.window <= position) continue;
      const size_t at = (key * a.kv_heads + head) * d;
      double score = a.shape().scale * std::inner_product(&q[row * d], &q[row * d] + d, &k[at], 0.0);
      if (a.softcap != 0) score = a.softcap * std::tanh(score / a.softcap);
      total += std::exp(score);
      for (size_t i = 0; i < d; ++i) out[row * d + i] += std::exp(score) * v[at + i];
    }
    for (size_t i = 0; i < d; ++i) out[row * d + i] /= total;
  }
  return out;
}

TEST(AttentionGradient, IsTheSlope) {
  for (const AttentionSize& a : {AttentionSize{1, 6, 2, 2, 3, 0, 0}, AttentionSize{1, 7, 4, 2, 2, 3, 0},
                                 AttentionSize{1, 5, 3, 1, 4, 0, 1.5f}, AttentionSize{1, 7, 2, 1, 3, 4, 2.0f}}) {
    SCOPED_TRACE(a.name());
    const auto device = make_cpu_backend(1);
    const size_t width = a.heads * a.head_dim, kv_width = a.kv_heads * a.head_dim;
    const auto q = random_floats(a.length * width, 1), k = random_floats(a.length * kv_width, 2),
               v = random_floats(a.length * kv_width, 3), dout = random_floats(a.length * width, 4);
    const Values q_at = doubles(q), k_at = doubles(k), v_at = doubles(v);
    const Tensor dq = device->allocate(a.length, width), dk = device->allocate(a.length, kv_width),
                 dv = device->allocate(a.length, kv_width);
    device->enqueue(op::AttentionGradient{uploaded(*device, q, a.length), uploaded(*device, k, a.length),
                                          uploaded(*device, v, a.length), uploaded(*device, dout, a.length), 1,
                                          a.shape(), dq, dk, dv});
    const auto loss = [&](const Values& out) { return sum_of_products(out, dout); };
    expect_gradient(
        *device, dq, [&](const Values& at) { return loss(attended(a, at, k_at, v_at)); }, q);
    expect_gradient(
        *device, dk, [&](const Values& at) { return loss(attended(a, q_at, at, v_at)); }, k);
    expect_gradient(
        *device, dv, [&](const Values& at) { return loss(attended(a, q_at, k_at, at)); }, v);
  }
}

TEST(SampledGradient, IsTheSlopeForTheTokenDrawn) {
  constexpr size_t kTokens = 11;
  for (const float cap : {0.0f, 3.0f}) {
    SCOPED_TRACE(cap);
    const auto device = make_cpu_backend(1);
    const std::vector<float> a = random_floats(kTokens, 1, 4.0f);
    std::vector<float> logits = a;
    if (cap != 0) {
      for (float& x : logits) x = cap * std::tanh(x / cap);
    }
    const std::vector<float> uniform = clear_uniforms(logits, 1, kTokens);
    const size_t token = draw(logits, uniform[0]).token;
    const Loss loss = [&](Values at) {
      double sum = 0;
      for (double& x : at) {
        if (cap != 0) x = cap * std::tanh(x / cap);
        sum += std::exp(x);
      }
      return std::log(sum) - at[token];
    };
    const Tensor gradient = uploaded(*device, logits, 1);
    device->enqueue(op::SampledGradient{gradient, uploaded(*device, uniform, 1), cap});
    expect_gradient(*device, gradient, loss, a);
  }
}

TEST(Gradients, RefuseWrongShapes) {
  const auto device = make_cpu_backend(1);
  const Tensor a = device->allocate(6, 16), b = device->allocate(6, 15), column = device->allocate(6, 1);
  const Tensor weight = device->allocate(1, 16), q = device->allocate(6, 32);
  const AttentionShape shape{4, 2, 8, 1.0f, 0.0f, 0};
  const auto silu = ActivationKind::kSilu;
  EXPECT_TRUE(refuses(*device, op::RmsNormGradient{a, device->allocate(1, 3), 1e-5f, a, a}));
  EXPECT_TRUE(refuses(*device, op::RmsNormGradient{a, weight, 1e-5f, b, a}));
  EXPECT_TRUE(refuses(*device, op::RmsNormGradient{a, weight, 1e-5f, a, b}));
  EXPECT_TRUE(refuses(*device, op::GatedActivationGradient{a, a, silu, a, b, a}));
  EXPECT_TRUE(refuses(*device, op::GatedActivationGradient{a, a, silu, a, a, b}));
  EXPECT_TRUE(refuses(*device, op::GatedActivationGradient{a, b, silu, a, a, a}));
  EXPECT_TRUE(refuses(*device, op::AttentionGradient{q, a, a, q, 4, shape, q, a, a}));
  EXPECT_TRUE(refuses(*device, op::AttentionGradient{q, a, a, a, 2, shape, q, a, a}));
  EXPECT_TRUE(refuses(*device, op::AttentionGradient{q, a, a, q, 2, shape, a, a, a}));
  EXPECT_TRUE(refuses(*device, op::AttentionGradient{q, a, a, q, 2, shape, q, a, b}));
  EXPECT_TRUE(refuses(*device, op::SampledGradient{a, b, 0}));
  EXPECT_TRUE(refuses(*device, op::SampledGradient{a, column, -1.0f}));
}

}  // namespace
}  // namespace bw::backend
