// Cases of TokenNll and CompareLogits.
#pragma once

#include "backend/cases/case.h"

namespace bw::backend::conformance {

inline double log_sum(std::span<const float> x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const float v : x) sum += std::exp(v - top);
  return top + std::log(sum);
}

// The first, the last, the middle one ... of n tokens.
inline std::vector<int32_t> some_targets(size_t rows, size_t n) {
  std::vector<int32_t> targets(rows);
  for (size_t r = 0; r < rows; ++r) {
    targets[r] = static_cast<int32_t>(r % 3 == 0 ? 0 : r % 3 == 1 ? n - 1 : n / 2);
  }
  return targets;
}

inline Case token_nll_case(std::vector<float> logits, size_t rows, size_t n) {
  Case c{fmt::format("{} x {}", rows, n),
         {beside(operand(logits, rows, n), 0, 1), beside(operand(some_targets(rows, n), rows, 1), 1, 1),
          beside(unset(rows, 1), 0, 1)},
         {}};
  c.op = [](Backend&, std::span<const Tensor> t) { return op::TokenNll{t[0], t[1], t[2]}; };
  c.reference = [rows, n](const Operands& before) {
    const auto x = before[0].as<float>();
    const auto targets = before[1].as<int32_t>();
    std::vector<double> wanted(rows), distance(rows);
    for (size_t r = 0; r < rows; ++r) {
      const auto row = x.subspan(r * n, n);
      wanted[r] = log_sum(row) - row[static_cast<size_t>(targets[r])];
      distance[r] = 2e-6 * (1 + std::abs(wanted[r]));
    }
    return within(2, wanted, distance);
  };
  return c;
}

// A value that is no number anywhere in a row, also far from the target, must show in what comes out.
inline std::vector<std::vector<float>> spoiled_rows(size_t n) {
  std::vector<std::vector<float>> rows;
  for (const float bad : {std::nanf(""), INFINITY}) {
    for (const size_t at : {size_t{0}, n / 2, n - 2}) {
      rows.push_back(random_floats(n, n, 5.0f));
      rows.back()[at] = bad;
    }
  }
  return rows;
}

inline Case spoiled_nll_case(const std::vector<float>& logits) {
  const size_t n = logits.size();
  Case c = token_nll_case(logits, 1, n);
  c.name = fmt::format("not finite, {}", n);
  c.operands[1] = operand(std::vector<int32_t>{static_cast<int32_t>(n - 1)}, 1, 1);
  c.reference = [](const Operands&) { return within(2, std::nan(""), 0); };
  return c;
}

inline std::vector<Case> token_nll_cases() {
  std::vector<Case> cases = {token_nll_case({}, 0, 4), token_nll_case(random_floats(60 * 700, 1, 9.0f), 60, 700)};
  for (const size_t n : {1, 2, 17, 511, 512, 513, 5000}) {
    cases.push_back(token_nll_case(random_floats(3 * n, n, 20.0f), 3, n));
  }
  for (const size_t n : {3, 40, 1000}) {  // tokens that cannot come: logit -inf
    std::vector<float> logits = random_floats(n, n, 5.0f);
    for (size_t i = 1; i < n; i += 2) logits[i] = -INFINITY;
    cases.push_back(token_nll_case(logits, 1, n));
  }
  for (const size_t n : {2, 17, 513, 1000}) {
    for (const std::vector<float>& row : spoiled_rows(n)) cases.push_back(spoiled_nll_case(row));
  }
  return cases;
}

inline Case compare_case(std::vector<float> p, std::vector<float> q, size_t rows, size_t n) {
  const std::vector<int32_t> targets(rows, static_cast<int32_t>(n - 1));
  Case c{fmt::format("{} x {}", rows, n),
         {beside(operand(p, rows, n), 1, 0), beside(operand(q, rows, n), 0, 1), beside(operand(targets, rows, 1), 0, 1),
          beside(unset(rows, 4), 1, 1)},
         {}};
  c.op = [](Backend&, std::span<const Tensor> t) { return op::CompareLogits{t[0], t[1], t[2], t[3]}; };
  c.reference = [rows, n](const Operands& before) {
    std::vector<double> wanted, distance;
    for (size_t r = 0; r < rows; ++r) {
      const auto a = before[0].as<float>().subspan(r * n, n), b = before[1].as<float>().subspan(r * n, n);
      const double la = log_sum(a), lb = log_sum(b);
      double kld = 0;
      for (size_t i = 0; i < n; ++i) kld += std::exp(a[i] - la) * ((a[i] - la) - (b[i] - lb));
      const auto top = [](std::span<const float> x) { return std::max_element(x.begin(), x.end()) - x.begin(); };
      wanted.insert(wanted.end(), {kld, la - a[n - 1], lb - b[n - 1], top(a) == top(b) ? 1.0 : 0.0});
      distance.insert(distance.end(), {2e-6 + 1e-5 * kld, 1e-5, 1e-5, 0.0});
    }
    return within(3, wanted, distance);
  };
  return c;
}

inline Case noisy_compare_case(size_t rows, size_t n, float noise) {
  const std::vector<float> p = random_floats(rows * n, n, 10.0f), change = random_floats(rows * n, n + 1, noise);
  std::vector<float> q = p;
  for (size_t i = 0; i < q.size(); ++i) q[i] += change[i] + 3.0f;
  Case c = compare_case(p, q, rows, n);
  c.name += fmt::format(", noise {}", noise);
  return c;
}

// A row and itself: nothing at all between them.
inline Case same_logits_case() {
  const std::vector<float> x = random_floats(1000, 1, 30.0f);
  Case c = compare_case(x, x, 1, 1000);
  c.name = "a row with itself";
  c.reference = [](const Operands&) -> Expectation {
    return [](const Operands& after) -> std::string {
      const auto out = after[3].as<float>();
      const bool fits = out[0] == 0 && out[1] == out[2] && out[3] == 1;
      return fits ? "" : fmt::format("{} {} {} {}", out[0], out[1], out[2], out[3]);
    };
  };
  return c;
}

inline Case spoiled_compare_case(const std::vector<float>& spoiled, bool second) {
  const size_t n = spoiled.size();
  const std::vector<float> good = random_floats(n, n, 5.0f);
  Case c = second ? compare_case(good, spoiled, 1, n) : compare_case(spoiled, good, 1, n);
  c.name = fmt::format("not finite, {}, {}", n, second ? "q" : "p");
  const double good_nll = log_sum(good) - good[n - 1], bad = std::nan("");
  c.reference = [=](const Operands&) -> Expectation {
    return [=](const Operands& after) {  // where the largest logit is, is not defined then
      Operands three = after;
      three[3] = operand(std::vector<float>(after[3].as<float>().begin(), after[3].as<float>().begin() + 3), 1, 3);
      return within(3, {bad, second ? good_nll : bad, second ? bad : good_nll}, {0, 1e-5, 1e-5})(three);
    };
  };
  return c;
}

inline std::vector<Case> compare_cases() {
  std::vector<Case> cases = {compare_case({}, {}, 0, 4), same_logits_case(), large(noisy_compare_case(60, 700, 0.1f))};
  for (const size_t n : {1, 2, 17, 513, 5000}) {
    for (const float noise : {0.0f, 0.01f, 1.0f}) cases.push_back(noisy_compare_case(4, n, noise));
  }
  for (const size_t n : {2, 17, 513, 1000}) {
    for (const std::vector<float>& row : spoiled_rows(n)) {
      for (const bool second : {false, true}) cases.push_back(spoiled_compare_case(row, second));
    }
  }
  return cases;
}

}  // namespace bw::backend::conformance
