// Cases of Linear, Gemm, AccumulateGram, Symmetrize and Dot.
#pragma once

#include "backend/cases/movement.h"

namespace bw::backend::conformance {

// Operands of a product, rounded as its precision says, in double.
inline std::vector<double> rounded_values(const Operand& o, Precision p) {
  std::vector<double> v = o.values();
  for (double& x : v) x = rounded(static_cast<float>(x), p);
  return v;
}

// op(a) (m, k) · op(b) (k, n).
inline std::vector<double> product(std::span<const double> a, bool ta, std::span<const double> b, bool tb, size_t m,
                                   size_t n, size_t k) {
  std::vector<double> c(m * n);
  for (size_t i = 0; i < m; ++i) {
    for (size_t l = 0; l < k; ++l) {
      const double x = ta ? a[l * m + i] : a[i * k + l];
      for (size_t j = 0; j < n; ++j) c[i * n + j] += x * (tb ? b[j * k + l] : b[l * n + j]);
    }
  }
  return c;
}

struct ProductShape {
  size_t m, n, k;
};
inline constexpr ProductShape kProductShapes[] = {{1, 1, 1},      {1, 7, 3},      {2, 64, 64},   {3, 65, 33},
                                                  {5, 129, 127},  {64, 128, 96},  {257, 96, 40}, {255, 300, 17},
                                                  {300, 257, 65}, {513, 40, 129}, {33, 1100, 64}};
// Both types accumulate in float.
inline constexpr double kProductBound = 1e-12;

inline Case linear_case(ProductShape s, Precision p, bool bias, bool accumulate) {
  const auto [m, n, k] = s;
  Case c{
      fmt::format("{} x {} x {}, precision {}, bias {}, accumulate {}", m, n, k, static_cast<int>(p), bias, accumulate),
      {beside(random_operand(m, k, 1), 1, 2), random_operand(n, k, 2), beside(random_operand(1, n, 3), 1, 1),
       beside(accumulate ? random_operand(m, n, 4) : unset(m, n), 2, 3)},
      {}};
  c.op = [=](Backend& device, std::span<const Tensor> t) {
    return op::Linear{t[0], device.pack_weight(t[1], p), bias ? t[2] : Tensor{}, t[3], accumulate};
  };
  c.reference = [=](const Operands& before) {
    std::vector<double> wanted =
        product(rounded_values(before[0], p), false, rounded_values(before[1], p), true, m, n, k);
    const std::vector<double> b = before[2].values(), y = before[3].values();
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += (bias ? b[i % n] : 0) + (accumulate ? y[i] : 0);
    return close_to(3, wanted, kProductBound);
  };
  return c;
}

inline std::vector<Case> linear_cases() {
  std::vector<Case> cases;
  for (const Precision p : {Precision::kF32, Precision::kBF16}) {
    for (const bool bias : {false, true}) {
      for (const bool accumulate : {false, true}) {
        for (const ProductShape& s : kProductShapes) cases.push_back(linear_case(s, p, bias, accumulate));
      }
    }
    cases.push_back(linear_case({0, 3, 4}, p, true, false));
    cases.push_back(linear_case({4500, 33, 20}, p, false, false));  // more rows than go through at once
  }
  return cases;
}

struct GemmScales {
  float alpha, beta;
};

inline Case gemm_case(ProductShape s, bool ta, bool tb, GemmScales scales, Precision p) {
  const auto [m, n, k] = s;
  const Operand a = ta ? random_operand(k, m, 1) : random_operand(m, k, 1);
  const Operand b = tb ? random_operand(n, k, 2) : random_operand(k, n, 2);
  const bool reads_c = scales.beta != 0;
  Case c{fmt::format("{} x {} x {}, transposed {} {}, {} and {}, precision {}", m, n, k, ta, tb, scales.alpha,
                     scales.beta, static_cast<int>(p)),
         {beside(a, 1, 2), beside(b, 0, 1), beside(reads_c ? random_operand(m, n, 3) : unset(m, n), 1, 1)},
         {}};
  c.op = [=](Backend&, std::span<const Tensor> t) {
    return op::Gemm{t[0], ta, t[1], tb, t[2], scales.alpha, scales.beta, p};
  };
  c.reference = [=](const Operands& before) {
    std::vector<double> wanted = product(rounded_values(before[0], p), ta, rounded_values(before[1], p), tb, m, n, k);
    const std::vector<double> old = before[2].values();
    for (size_t i = 0; i < wanted.size(); ++i) {
      wanted[i] = double{scales.alpha} * wanted[i] + (reads_c ? scales.beta * old[i] : 0);
    }
    return close_to(2, wanted, kProductBound);
  };
  return c;
}

inline std::vector<Case> gemm_cases() {
  std::vector<Case> cases;
  for (const Precision p : {Precision::kF32, Precision::kBF16}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const ProductShape& s : kProductShapes) {
          cases.push_back(gemm_case(s, ta, tb, {-0.5f, 2.0f}, p));
          cases.push_back(gemm_case(s, ta, tb, {1.0f, 0.0f}, p));
        }
      }
    }
  }
  for (const float beta : {0.0f, 3.0f}) {  // nothing to sum up: c is only scaled
    cases.push_back(gemm_case({3, 5, 0}, false, false, {1.0f, beta}, Precision::kF32));
    cases.push_back(gemm_case({0, 5, 4}, false, false, {1.0f, beta}, Precision::kF32));
    cases.push_back(gemm_case({3, 0, 4}, false, false, {1.0f, beta}, Precision::kF32));
  }
  return cases;
}

inline std::vector<bool> upper_triangle(size_t n) {
  std::vector<bool> upper(n * n);
  for (size_t i = 0; i < n; ++i) std::fill_n(upper.begin() + static_cast<ptrdiff_t>(i * n + i), n - i, true);
  return upper;
}

// Random above the diagonal and on it, unset below.
inline Operand random_upper(size_t n, uint64_t seed) {
  std::vector<float> h = random_floats(n * n, seed);
  for (size_t i = 0; i < n; ++i) std::fill_n(h.begin() + static_cast<ptrdiff_t>(i * n), i, std::nanf(""));
  return operand(h, n, n);
}

inline Case gram_case(size_t tokens, size_t n, bool weighted, Precision p) {
  Case c{fmt::format("{} x {}, weighted {}, precision {}", tokens, n, weighted, static_cast<int>(p)),
         {beside(random_operand(tokens, n, 1), 1, 1), beside(random_operand(tokens, 1, 2), 0, 1),
          beside(random_upper(n, 3), 0, 2)},
         {}};
  c.op = [=](Backend&, std::span<const Tensor> t) {
    return op::AccumulateGram{t[0], weighted ? t[1] : Tensor{}, t[2], p};
  };
  c.reference = [=](const Operands& before) {
    const auto x = before[0].as<float>(), w = before[1].as<float>();
    std::vector<double> left(x.size()), right(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      left[i] = rounded(x[i], p);
      right[i] = rounded(weighted ? x[i] * w[i / n] : x[i], p);
    }
    std::vector<double> wanted = product(left, true, right, false, n, n, tokens);
    const std::vector<double> old = before[2].values();
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += old[i];
    return close_to(2, wanted, kProductBound, upper_triangle(n));
  };
  return c;
}

inline std::vector<Case> gram_cases() {
  std::vector<Case> cases;
  for (const Precision p : {Precision::kF32, Precision::kBF16}) {
    for (const bool weighted : {false, true}) {
      for (const auto& [tokens, n] :
           {std::pair<size_t, size_t>{0, 6}, {1, 1}, {3, 5}, {17, 64}, {1025, 33}, {40, 257}, {130, 400}}) {
        cases.push_back(gram_case(tokens, n, weighted, p));
      }
    }
  }
  return cases;
}

inline Case symmetrize_case(size_t n) {
  Case c{fmt::format("{}", n), {beside(random_upper(n, n), 1, 1), beside(unset(n, n), 0, 3)}, {}};
  c.op = [](Backend&, std::span<const Tensor> t) { return op::Symmetrize{t[0], t[1]}; };
  c.reference = [n](const Operands& before) {
    std::vector<double> wanted = before[0].values();
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < i; ++j) wanted[i * n + j] = wanted[j * n + i];
    }
    return close_to(1, wanted, 0);
  };
  return c;
}

inline std::vector<Case> symmetrize_cases() {
  std::vector<Case> cases;
  for (const size_t n : {0, 1, 2, 31, 32, 33, 64, 65, 257, 300}) cases.push_back(symmetrize_case(n));
  return cases;
}

inline Case dot_case(size_t rows, size_t cols) {
  Case c{fmt::format("{} x {}", rows, cols),
         {beside(random_operand(rows, cols, 1), 1, 2), beside(random_operand(rows, cols, 2), 2, 0), sum_of(2.5)},
         {}};
  c.op = [](Backend&, std::span<const Tensor> t) { return op::Dot{t[0], t[1], t[2]}; };
  c.reference = [](const Operands& before) {
    const std::vector<double> a = before[0].values(), b = before[1].values();
    double sum = 2.5, size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      sum += a[i] * b[i];
      size += std::abs(a[i] * b[i]);
    }
    return within(2, sum, 1e-6 * size);
  };
  return c;
}

inline std::vector<Case> dot_cases() {
  std::vector<Case> cases = {dot_case(0, 4), dot_case(4, 0), dot_case(2000, 3), large(dot_case(130, 1000))};
  for (const size_t n : kWidths) cases.push_back(dot_case(3, n));
  return cases;
}

}  // namespace bw::backend::conformance
