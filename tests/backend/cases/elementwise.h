// Cases of the operations on elements and rows: RmsNorm, Add, Scale, GatedActivation, Softcap, Rope, RowSquaredNorms,
// WeightedDifference, RowRatios and LargestMagnitude.
#pragma once

#include "backend/cases/case.h"

namespace bw::backend::conformance {

enum class InPlace : uint8_t { kNo, kFirst, kSecond };  // whether, and on which operand, the result is written

inline Case rms_norm_case(size_t rows, size_t n, size_t runs, InPlace place) {
  Case c{fmt::format("{} x {} runs of {}, in place {}", rows, runs, n, static_cast<int>(place)),
         {beside(random_operand(rows, runs * n, n, 3.0f), 1, 2), random_operand(1, n, n + 1),
          beside(unset(rows, runs * n), 2, 1)},
         {}};
  const size_t result = place == InPlace::kNo ? 2 : 0;
  c.op = [=](Backend&, std::span<const Tensor> t) { return op::RmsNorm{t[0], t[1], 1e-5f, t[result]}; };
  c.reference = [=](const Operands& before) {
    const auto x = before[0].as<float>(), w = before[1].as<float>();
    std::vector<double> wanted(x.size());
    for (size_t run = 0; run < rows * runs; ++run) {
      double mean = 0;
      for (size_t i = 0; i < n; ++i) mean += double{x[run * n + i]} * x[run * n + i] / static_cast<double>(n);
      for (size_t i = 0; i < n; ++i) wanted[run * n + i] = x[run * n + i] / std::sqrt(mean + 1e-5f) * w[i];
    }
    return close_to(result, wanted, 1e-13);
  };
  return c;
}

inline std::vector<Case> rms_norm_cases() {
  std::vector<Case> cases;
  for (const size_t n : kWidths) {
    for (const size_t runs : {1, 3}) cases.push_back(rms_norm_case(5, n, runs, InPlace::kNo));
  }
  cases.push_back(rms_norm_case(0, 8, 1, InPlace::kFirst));
  cases.push_back(rms_norm_case(3, 64, 2, InPlace::kFirst));
  cases.push_back(rms_norm_case(1, 4, 1, InPlace::kFirst));
  cases.back().name = "zeros";
  cases.back().operands[0] = filled(1, 4, 0.0f);
  cases.push_back(rms_norm_case(2, 5000, 1, InPlace::kNo));
  return cases;
}

inline Case add_case(size_t rows, size_t cols) {
  Case c{fmt::format("{} x {}", rows, cols),
         {beside(random_operand(rows, cols, cols), 1, 1), beside(random_operand(rows, cols, cols + 1), 1, 0)},
         {}};
  c.op = [](Backend&, std::span<const Tensor> t) { return op::Add{t[0], t[1]}; };
  c.reference = [](const Operands& before) {
    const auto x = before[0].as<float>(), y = before[1].as<float>();
    std::vector<float> wanted(x.size());
    for (size_t i = 0; i < x.size(); ++i) wanted[i] = x[i] + y[i];
    return same_as(1, operand(wanted, before[0].rows, before[0].cols));
  };
  return c;
}

inline std::vector<Case> add_cases() {
  std::vector<Case> cases = {add_case(0, 8), add_case(700, 130)};
  for (const size_t n : kWidths) cases.push_back(add_case(3, n));
  return cases;
}

inline Case scale_case(size_t rows, size_t cols, float factor) {
  Case c{fmt::format("{} x {} by {}", rows, cols, factor), {beside(random_operand(rows, cols, cols), 1, 1)}, {}};
  c.op = [factor](Backend&, std::span<const Tensor> t) { return op::Scale{t[0], factor}; };
  c.reference = [factor](const Operands& before) {
    const auto x = before[0].as<float>();
    std::vector<float> wanted(x.size());
    for (size_t i = 0; i < x.size(); ++i) wanted[i] = x[i] * factor;
    return same_as(0, operand(wanted, before[0].rows, before[0].cols));
  };
  return c;
}

inline std::vector<Case> scale_cases() {
  std::vector<Case> cases = {scale_case(0, 8, 2.0f), scale_case(700, 130, -1.7f), scale_case(2, 9, 0.0f)};
  for (const size_t n : kWidths) cases.push_back(scale_case(3, n, 0.3f));
  return cases;
}

inline double activated(double x, ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case ActivationKind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return 0;
}

inline Case activation_case(size_t rows, size_t cols, ActivationKind kind, InPlace place) {
  Case c{fmt::format("{} x {}, kind {}, in place {}", rows, cols, static_cast<int>(kind), static_cast<int>(place)),
         {beside(random_operand(rows, cols, cols, 8.0f), 0, 1), beside(random_operand(rows, cols, cols + 1), 1, 1),
          beside(unset(rows, cols), 0, 3)},
         {}};
  const size_t result = place == InPlace::kNo ? 2 : place == InPlace::kFirst ? 0 : 1;
  c.op = [=](Backend&, std::span<const Tensor> t) { return op::GatedActivation{t[0], t[1], kind, t[result]}; };
  c.reference = [=](const Operands& before) {
    const auto gate = before[0].as<float>(), up = before[1].as<float>();
    std::vector<double> wanted(gate.size());
    for (size_t i = 0; i < gate.size(); ++i) wanted[i] = activated(gate[i], kind) * up[i];
    return close_to(result, wanted, 1e-12);
  };
  return c;
}

// Gates whose exponential is no float: each result by itself must be right, above all the zeros.
inline Case saturated_activation_case(ActivationKind kind) {
  std::vector<float> gate;
  for (const float x : {-200.0f, 200.0f, -1e4f, 1e4f, -88.7f, 88.7f, -104.0f, 0.0f}) gate.insert(gate.end(), 5, x);
  Case c = activation_case(1, gate.size(), kind, InPlace::kNo);
  c.name = fmt::format("saturated, kind {}", static_cast<int>(kind));
  c.operands[0] = operand(gate, 1, gate.size());
  c.reference = [=](const Operands& before) {
    const auto up = before[1].as<float>();
    std::vector<double> wanted(up.size()), distance(up.size());
    for (size_t i = 0; i < up.size(); ++i) {
      wanted[i] = activated(gate[i], kind) * up[i];
      distance[i] = 1e-30 + 1e-6 * std::abs(wanted[i]);
    }
    return within(2, wanted, distance);
  };
  return c;
}

inline std::vector<Case> activation_cases() {
  std::vector<Case> cases;
  for (const ActivationKind kind : {ActivationKind::kSilu, ActivationKind::kGelu, ActivationKind::kGeluTanh}) {
    for (const size_t n : kWidths) cases.push_back(activation_case(2, n, kind, InPlace::kFirst));
    cases.push_back(activation_case(5, 33, kind, InPlace::kSecond));
    cases.push_back(activation_case(70, 1000, kind, InPlace::kNo));
    cases.push_back(activation_case(0, 8, kind, InPlace::kFirst));
    cases.push_back(saturated_activation_case(kind));
  }
  return cases;
}

inline Case softcap_case(size_t rows, size_t cols) {
  std::vector<float> x = random_floats(rows * cols, cols, 90.0f);
  if (!x.empty()) x[0] = 1e6f;
  Case c{fmt::format("{} x {}", rows, cols), {beside(operand(x, rows, cols), 1, 1)}, {}};
  c.op = [](Backend&, std::span<const Tensor> t) { return op::Softcap{t[0], 30.0f}; };
  c.reference = [](const Operands& before) {
    std::vector<double> wanted = before[0].values();
    for (double& v : wanted) v = 30.0 * std::tanh(v / 30.0);
    return close_to(0, wanted, 1e-12);
  };
  return c;
}

inline std::vector<Case> softcap_cases() {
  std::vector<Case> cases = {softcap_case(0, 8), softcap_case(70, 1000)};
  for (const size_t n : kWidths) cases.push_back(softcap_case(2, n));
  return cases;
}

// (positions, d): cos and sin of the angles of each position.
inline Operand angles(size_t positions, size_t d) {
  std::vector<float> table(positions * d);
  for (size_t p = 0; p < positions; ++p) {
    for (size_t i = 0; i < d / 2; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(d));
      table[p * d + i] = static_cast<float>(std::cos(angle));
      table[p * d + d / 2 + i] = static_cast<float>(std::sin(angle));
    }
  }
  return operand(table, positions, d);
}

inline Case rope_case(size_t rows, size_t heads, size_t d, size_t n_positions = 5, bool inverse = false) {
  Rng rng(d);
  std::vector<int32_t> positions(rows);
  for (int32_t& p : positions) p = static_cast<int32_t>(rng.below(static_cast<uint32_t>(n_positions)));
  if (rows > 1) positions[0] = static_cast<int32_t>(n_positions - 1), positions[1] = 0;
  Case c{fmt::format("{} rows of {} heads of {}, inverse {}", rows, heads, d, inverse),
         {beside(random_operand(rows, heads * d, d), 1, 1), beside(operand(positions, rows, 1), 0, 1),
          beside(angles(n_positions, d), 0, 1)},
         {}};
  c.op = [=](Backend&, std::span<const Tensor> t) { return op::Rope{t[0], d, t[1], t[2], inverse}; };
  c.reference = [=](const Operands& before) {
    const auto x = before[0].as<float>(), table = before[2].as<float>();
    const auto position = before[1].as<int32_t>();
    std::vector<double> wanted(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t r = i / (heads * d), col = i % d, half = d / 2;
      const float* angle = &table[static_cast<size_t>(position[r]) * d];
      const double cos = angle[col % half], sin = (inverse ? -1 : 1) * double{angle[half + col % half]};
      wanted[i] = col >= half ? x[i] * cos + x[i - half] * sin : x[i] * cos - x[i + half] * sin;
    }
    return close_to(0, wanted, 1e-13);
  };
  return c;
}

inline std::vector<Case> rope_cases() {
  std::vector<Case> cases = {rope_case(0, 2, 8), rope_case(300, 9, 64, 300)};
  for (const size_t d : {2, 6, 16, 34, 64, 256}) {
    for (const bool inverse : {false, true}) cases.push_back(rope_case(4, 3, d, 5, inverse));
  }
  return cases;
}

inline Case row_norms_case(size_t rows, size_t cols, bool minus) {
  Case c{fmt::format("{} x {}, minus {}", rows, cols, minus),
         {beside(random_operand(rows, cols, cols), 1, 0), beside(random_operand(rows, cols, cols + 1), 1, 1),
          beside(unset(rows, 1), 0, 1)},
         {}};
  c.op = [minus](Backend&, std::span<const Tensor> t) {
    return op::RowSquaredNorms{t[0], minus ? t[1] : Tensor{}, t[2]};
  };
  c.reference = [=](const Operands& before) {
    const std::vector<double> x = before[0].values(), m = before[1].values();
    std::vector<double> wanted(rows);
    for (size_t i = 0; i < x.size(); ++i) wanted[i / cols] += std::pow(x[i] - (minus ? m[i] : 0), 2);
    return close_to(2, wanted, minus ? 5e-13 : 1e-13);
  };
  return c;
}

inline std::vector<Case> row_norms_cases() {
  std::vector<Case> cases;
  for (const bool minus : {false, true}) {
    cases.push_back(row_norms_case(0, 8, minus));
    cases.push_back(row_norms_case(3, 0, minus));
    cases.push_back(large(row_norms_case(200, 700, minus)));
    for (const size_t n : kWidths) cases.push_back(row_norms_case(3, n, minus));
  }
  return cases;
}

inline Case weighted_difference_case(size_t rows, size_t cols, InPlace place) {
  std::vector<float> weights = random_floats(rows, cols + 2, 5.0f);
  if (rows > 1) weights[1] = 0;
  Case c{fmt::format("{} x {}, in place {}", rows, cols, static_cast<int>(place)),
         {beside(random_operand(rows, cols, cols), 1, 0), beside(random_operand(rows, cols, cols + 1), 0, 2),
          beside(operand(weights, rows, 1), 1, 2), beside(unset(rows, cols), 1, 1)},
         {}};
  const size_t result = place == InPlace::kNo ? 3 : place == InPlace::kFirst ? 0 : 1;
  c.op = [=](Backend&, std::span<const Tensor> t) { return op::WeightedDifference{t[0], t[1], t[2], t[result]}; };
  c.reference = [=](const Operands& before) {
    const auto x = before[0].as<float>(), minus = before[1].as<float>(), weight = before[2].as<float>();
    std::vector<float> wanted(x.size());
    for (size_t i = 0; i < x.size(); ++i) wanted[i] = weight[i / cols] * (x[i] - minus[i]);
    return same_as(result, operand(wanted, rows, cols));
  };
  return c;
}

inline std::vector<Case> weighted_difference_cases() {
  std::vector<Case> cases = {weighted_difference_case(0, 8, InPlace::kNo), weighted_difference_case(3, 0, InPlace::kNo),
                             weighted_difference_case(700, 130, InPlace::kFirst)};
  for (const InPlace place : {InPlace::kNo, InPlace::kFirst, InPlace::kSecond}) {
    for (const size_t n : kWidths) cases.push_back(weighted_difference_case(3, n, place));
  }
  return cases;
}

struct RatioOperands {
  bool numerator, sum;
  InPlace place = InPlace::kNo;  // kFirst: the numerator, kSecond: the denominator
};

inline Case row_ratios_case(size_t rows, RatioOperands with) {
  std::vector<float> denominators = random_floats(rows, rows, 4.0f);  // half of them negative
  for (size_t i = 0; i < rows; ++i) {
    if (i % 7 == 3) denominators[i] = 0;
    if (i % 7 == 5) denominators[i] = std::nanf("");  // is not above 0 either
  }
  Case c{fmt::format("{} rows, numerator {}, sum {}, in place {}", rows, with.numerator, with.sum,
                     static_cast<int>(with.place)),
         {beside(random_operand(rows, 1, 2), 0, 1), beside(operand(denominators, rows, 1), 1, 0),
          beside(unset(rows, 1), 0, 2), sum_of(-1.5)},
         {}};
  const size_t result = with.place == InPlace::kNo ? 2 : with.place == InPlace::kFirst ? 0 : 1;
  c.op = [=](Backend&, std::span<const Tensor> t) {
    return op::RowRatios{with.numerator ? t[0] : Tensor{}, t[1], t[result], with.sum ? t[3] : Tensor{}};
  };
  c.reference = [=](const Operands& before) {
    const std::vector<double> above = before[0].values(), below = before[1].values();
    std::vector<double> wanted(rows);
    double sum = -1.5, size = 0;
    for (size_t i = 0; i < rows; ++i) {
      if (below[i] > 0) wanted[i] = (with.numerator ? above[i] : 1) / below[i];
      sum += wanted[i];
      size += std::abs(wanted[i]);
    }
    return all_of({close_to(result, wanted, 1e-13), within(3, with.sum ? sum : -1.5, 2e-7 * size)});
  };
  return c;
}

inline std::vector<Case> row_ratios_cases() {
  std::vector<Case> cases;
  for (const size_t rows : {0, 1, 6, 17, 1000, 5000}) {
    for (const bool numerator : {false, true}) {
      for (const bool sum : {false, true}) cases.push_back(row_ratios_case(rows, {numerator, sum}));
    }
  }
  cases.push_back(row_ratios_case(40, {true, true, InPlace::kFirst}));
  cases.push_back(row_ratios_case(40, {true, true, InPlace::kSecond}));
  cases.push_back(row_ratios_case(40, {false, false, InPlace::kSecond}));
  return cases;
}

inline Case largest_magnitude_case(std::string name, const std::vector<float>& x, size_t rows, float before) {
  const size_t cols = rows == 0 ? 8 : x.size() / rows;
  Case c{fmt::format("{}, {} x {}, at least {}", name, rows, cols, before),
         {beside(operand(x, rows, cols), 2, 1), operand(std::vector<float>{before}, 1, 1)},
         {}};
  c.op = [](Backend&, std::span<const Tensor> t) { return op::LargestMagnitude{t[0], t[1]}; };
  c.reference = [](const Operands& operands) {
    float largest = operands[1].as<float>()[0];
    for (const float v : operands[0].as<float>()) {
      if (std::isnan(v) || std::abs(v) > largest) largest = std::abs(v);
      if (std::isnan(largest)) break;
    }
    return same_as(1, operand(std::vector<float>{largest}, 1, 1));
  };
  return c;
}

// The largest is at any place, of either sign; one that is no number too.
inline std::vector<Case> largest_magnitude_cases() {
  std::vector<Case> cases = {largest_magnitude_case("none", {}, 0, 2.5f), largest_magnitude_case("none", {}, 3, 2.5f),
                             large(largest_magnitude_case("many", random_floats(300 * 700, 5), 300, 0))};
  const auto with = [&](size_t n, size_t at, float value, float before) {
    std::vector<float> x = random_floats(3 * n, n);
    x[at] = value;
    cases.push_back(largest_magnitude_case(fmt::format("{} at {}", value, at), x, 3, before));
  };
  for (const size_t n : kWidths) {
    with(n, 0, 7.0f, 0.0f);
    with(n, 3 * n - 1, -7.0f, 0.5f);
    with(n, n + n / 2, 70000.0f, 70001.0f);
    with(n, 2 * n, -INFINITY, 1.0f);
    with(n, n / 2, std::nanf(""), INFINITY);
    with(n, n / 2, INFINITY, std::nanf(""));
  }
  return cases;
}

}  // namespace bw::backend::conformance
