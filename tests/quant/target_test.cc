#include "quant/target.h"

#include <gtest/gtest.h>

#include "quant/naive.h"

namespace bw::quant {
namespace {

class TargetOn : public OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, TargetOn, testing::ValuesIn(test::kDevices));

// The target W* must solve W* (H + λI) = W (H + λI) + share · missing.
void expect_solves(const Problem& p, const Matrix<float>& missing, float share, const Matrix<float>& rows) {
  const size_t in = p.w.cols(), out = p.w.rows();
  const double added = static_cast<double>(p.factor.report.damping) * mean_diagonal(p.h.view());
  for (size_t o = 0; o < out; ++o) {
    std::vector<double> step(in);  // of W*, in natural order
    for (size_t r = 0; r < in; ++r)
      step[p.factor.input(r)] = static_cast<double>(rows(r, o)) - p.w(o, p.factor.input(r));
    double off = 0, size = 0;
    for (size_t i = 0; i < in; ++i) {
      const double wanted = missing(o, i);
      double got = added * step[i];
      for (size_t j = 0; j < in; ++j) got += static_cast<double>(p.h(j, i)) * step[j];
      off += std::pow(got - share * wanted, 2);
      size += std::pow(share * wanted, 2);
    }
    EXPECT_LE(off, 1e-4 * size) << "output " << o;
  }
}

Matrix<float> product(const Matrix<float>& a, const Matrix<float>& b) {
  Matrix<float> c(a.rows(), b.cols());
  for (size_t i = 0; i < a.rows(); ++i) {
    for (size_t j = 0; j < b.cols(); ++j) {
      double sum = 0;
      for (size_t k = 0; k < a.cols(); ++k) sum += static_cast<double>(a(i, k)) * b(k, j);
      c(i, j) = static_cast<float>(sum);
    }
  }
  return c;
}

TEST_P(TargetOn, SolvesTheNormalEquations) {
  for (const auto& [out, in] : {std::pair<size_t, size_t>{40, 96}, {1, 32}, {33, 160}, {4097, 32}}) {
    const Problem p = make_problem(out, in, in);
    const Factor factor = upload(*device_, p.factor);
    const Matrix<float> inputs = random_matrix(in, in, 3), outputs = random_matrix(out, in, 4);
    for (const auto& [share, scale] : {std::pair{1.0f, 1.0f}, {0.5f, 1.0f}, {0.5f, 3.0f}}) {
      for (const bool shared : {false, true}) {
        const Disturbance d{shared ? upload(*device_, inputs) : backend::Tensor{},
                            shared ? backend::Tensor{} : upload(*device_, outputs), scale};
        const backend::Tensor rows = rows_on(*device_, p, factor);
        correct_target(*device_, rows, upload(*device_, p.w), d, factor, share);
        const Matrix<float> got = read_matrix<float>(*device_, rows);
        if (shared) expect_solves(p, product(p.w, inputs), share * scale, got);
        if (!shared) expect_solves(p, outputs, share * scale, got);
        for (size_t r = 0; r < in; ++r) {
          for (size_t c = out; c < got.cols(); ++c) ASSERT_EQ(got(r, c), 0);
        }
      }
    }
  }
}

// Inputs that are all twice what they should be want half the weights.
TEST_P(TargetOn, UndoesAScale) {
  Problem p = make_problem(20, 64, 9);
  for (float& x : p.h.span()) x *= 4;  // of x̂ = 2 x
  p.factor = factorize_on(*device_, p.h, 1e-6f);
  Matrix<float> inputs(64, 64);  // Σ (x - 2x) 2xᵀ = -2 Σ x xᵀ
  for (size_t i = 0; i < inputs.span().size(); ++i) inputs.span()[i] = p.h.span()[i] * -0.5f;
  const Factor factor = upload(*device_, p.factor);
  const backend::Tensor rows = rows_on(*device_, p, factor);
  correct_target(*device_, rows, upload(*device_, p.w), {upload(*device_, inputs), {}}, factor, 1.0f);
  const Matrix<float> got = read_matrix<float>(*device_, rows);
  for (size_t r = 0; r < 64; ++r) {
    for (size_t c = 0; c < 20; ++c) EXPECT_NEAR(got(r, c), 0.5f * p.w(c, p.factor.input(r)), 2e-3f);
  }
}

}  // namespace
}  // namespace bw::quant
