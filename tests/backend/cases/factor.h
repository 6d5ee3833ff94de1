// Cases of InverseFactor and HeldOutWeights.
#pragma once

#include <numeric>

#include "backend/cases/products.h"

namespace bw::backend::conformance {

// Σ x xᵀ of `tokens` correlated rows whose channels differ in size, symmetric.
inline std::vector<float> random_hessian(size_t n, size_t tokens, uint64_t seed, float size = 1) {
  Rng rng(seed);
  std::vector<double> channel(n), x(n), h(n * n, 0.0);
  for (double& c : channel) c = std::exp(normal(rng)) * size;
  for (size_t t = 0; t < tokens; ++t) {
    double shared = normal(rng);
    for (size_t i = 0; i < n; ++i) x[i] = channel[i] * ((shared = 0.7 * shared + 0.7 * normal(rng)));
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) h[i * n + j] += x[i] * x[j];
    }
  }
  return {h.begin(), h.end()};
}

// The same for very many tokens, in closed form: neighbours correlate, channels differ in size.
inline std::vector<float> smooth_hessian(size_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<double> channel(n);
  for (double& c : channel) c = std::exp(normal(rng));
  std::vector<float> h(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      const double distance = std::abs(static_cast<double>(i) - static_cast<double>(j));
      h[i * n + j] = static_cast<float>(channel[i] * channel[j] * std::pow(0.7, distance));
    }
  }
  return h;
}

enum class Steps : uint8_t { kNone, kSome, kAny, kFails };  // how often the damping must be raised

struct FactorWants {
  Steps steps = Steps::kNone;
  int32_t dead = 0;
  double error = 2e-3;  // of (H + damping·m·I) Uᵀ U z against z, for vectors z
  bool ordered = true;  // whether the matrix in order is asked for
};

// What InverseFactor gave.
struct Factored {
  size_t n;
  float damping;  // asked for
  std::span<const float> h;
  std::vector<double> diagonal;  // of h, the mean where that is zero
  double mean;
  std::span<const float> u, weights, ordered;
  std::span<const int32_t> order, status;

  // What the damping that was needed adds to the diagonal.
  double added() const { return damping * std::pow(10.0, status[op::kDampingSteps]) * mean; }
};

inline Factored factored(const Operands& after, float damping) {
  const size_t n = after[0].rows;
  Factored f{n,
             damping,
             after[0].as<float>(),
             {},
             0,
             after[1].as<float>(),
             after[3].as<float>(),
             after[5].as<float>(),
             after[2].as<int32_t>(),
             after[4].as<int32_t>()};
  double sum = 0;
  size_t live = 0;
  for (size_t i = 0; i < n; ++i) {
    sum += f.h[i * n + i];
    live += f.h[i * n + i] != 0;
  }
  f.mean = live == 0 ? 1 : static_cast<float>(sum / static_cast<double>(live));
  for (size_t i = 0; i < n; ++i) f.diagonal.push_back(f.h[i * n + i] == 0 ? f.mean : f.h[i * n + i]);
  return f;
}

inline std::string check_order(const Factored& f, bool natural) {
  std::vector<int32_t> wanted(f.n);
  for (size_t i = 0; i < f.n; ++i) wanted[i] = static_cast<int32_t>(i);
  const auto falling = [&](int32_t a, int32_t b) {
    return f.diagonal[static_cast<size_t>(a)] > f.diagonal[static_cast<size_t>(b)];
  };
  if (!natural) std::stable_sort(wanted.begin(), wanted.end(), falling);
  return std::equal(wanted.begin(), wanted.end(), f.order.begin()) ? "" : "the order is wrong";
}

inline std::string check_triangle(const Factored& f) {
  for (size_t i = 0; i < f.n; ++i) {
    const float* row = &f.u[i * f.n];
    if (!(row[i] > 0)) return fmt::format("u[{}][{}] is {}", i, i, row[i]);
    if (std::any_of(row, row + i, [](float x) { return x != 0; })) return fmt::format("row {} begins before {}", i, i);
    if (!std::all_of(row + i, row + f.n, [](float x) { return std::isfinite(x); })) return "u is not finite";
    const double unit = static_cast<double>(f.weights[i]) * row[i] * row[i];
    if (!(std::abs(unit - 1) <= 1e-5)) return fmt::format("weight {} times u² is {}", i, unit);
  }
  return {};
}

// (H + damping·m·I) Uᵀ U z must be z, in the order of the factor.
inline std::string check_inverse(const Factored& f, double allowed) {
  const size_t n = f.n;
  const double added = f.added();
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Rng rng(seed);
    std::vector<double> z(n), uz(n, 0.0), y(n, 0.0);
    for (double& x : z) x = normal(rng);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = i; j < n; ++j) uz[i] += static_cast<double>(f.u[i * n + j]) * z[j];
    }
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = i; j < n; ++j) y[j] += static_cast<double>(f.u[i * n + j]) * uz[i];
    }
    double error = 0, energy = 0;
    for (size_t i = 0; i < n; ++i) {
      const auto a = static_cast<size_t>(f.order[i]);
      double sum = (f.diagonal[a] + added) * y[i] - z[i];
      for (size_t j = 0; j < n; ++j) {
        const auto b = static_cast<size_t>(f.order[j]);
        if (j != i) sum += static_cast<double>(f.h[std::min(a, b) * n + std::max(a, b)]) * y[j];
      }
      error += sum * sum;
      energy += z[i] * z[i];
    }
    const double share = std::sqrt(error / energy);
    if (!(share <= allowed)) return fmt::format("the inverse is off by {:.3g}, allowed {:.3g}", share, allowed);
  }
  return {};
}

inline std::string check_diagonal_factor(const Factored& f) {
  for (size_t i = 0; i < f.n; ++i) {
    for (size_t j = i; j < f.n; ++j) {
      const double wanted = i == j ? 1 / std::sqrt(f.diagonal[i]) : 0;
      if (!(std::abs(f.u[i * f.n + j] - wanted) <= 1e-6 * wanted)) return fmt::format("u[{}][{}] is wrong", i, j);
    }
  }
  return {};
}

// H + damping·m·I in the order of the factor; or the diagonal alone.
inline std::string check_ordered(const Factored& f, bool diagonal) {
  const double added = diagonal ? 0 : f.added();
  for (size_t i = 0; i < f.n * f.n; ++i) {
    const auto a = static_cast<size_t>(f.order[i / f.n]), b = static_cast<size_t>(f.order[i % f.n]);
    const double coupling = diagonal ? 0 : f.h[std::min(a, b) * f.n + std::max(a, b)];
    const double wanted = a == b ? f.diagonal[a] + added : coupling, allowed = a == b ? 1e-6 * wanted : 0;
    if (!(std::abs(f.ordered[i] - wanted) <= allowed)) {
      return fmt::format("ordered[{}][{}] is {:.9g}, wanted {:.9g}", i / f.n, i % f.n, f.ordered[i], wanted);
    }
  }
  return {};
}

inline std::string check_factor(const Operands& after, float damping, const FactorWants& wants) {
  const Factored f = factored(after, damping);
  const int32_t steps = f.status[op::kDampingSteps];
  const bool fits = (wants.steps == Steps::kNone && steps == 0) || (wants.steps == Steps::kSome && steps > 0) ||
                    wants.steps == Steps::kAny || (wants.steps == Steps::kFails && steps == op::kMaxDampingSteps + 1);
  if (!fits || steps < 0 || steps > op::kMaxDampingSteps + 1) return fmt::format("damping raised {} times", steps);
  if (f.status[op::kNotFinite] != 0) return "a finite matrix taken for one that is not";
  if (f.status[op::kDeadInputs] != wants.dead) return fmt::format("{} dead inputs", f.status[op::kDeadInputs]);
  const bool failed = steps > op::kMaxDampingSteps;
  std::string fault = check_order(f, failed);
  if (fault.empty()) fault = check_triangle(f);
  if (fault.empty()) fault = failed ? check_diagonal_factor(f) : check_inverse(f, wants.error);
  if (fault.empty() && wants.ordered) fault = check_ordered(f, failed);
  return fault;
}

// h (n, n) symmetric; what lies below its diagonal is taken away.
inline Case factor_case(std::string name, std::vector<float> h, size_t n, float damping, FactorWants wants = {}) {
  for (size_t i = 0; i < n; ++i) std::fill_n(h.begin() + static_cast<ptrdiff_t>(i * n), i, std::nanf(""));
  Case c{fmt::format("{}, {}, damping {}", name, n, damping),
         {beside(operand(h, n, n), 1, 1), beside(unset(n, n), 0, 2), unset(n, 1, DType::kI32), unset(n, 1),
          unset(1, 4, DType::kI32), beside(unset(n, n), 2, 1)},
         {}};
  c.op = [damping, wants](Backend&, std::span<const Tensor> t) {
    return op::InverseFactor{t[0], damping, t[1], t[2], t[3], t[4], wants.ordered ? t[5] : Tensor{}};
  };
  c.reference = [=](const Operands&) -> Expectation {
    return [=](const Operands& after) { return check_factor(after, damping, wants); };
  };
  return c;
}

inline Case not_finite_factor_case(std::vector<float> h, size_t n, size_t row, size_t col, float bad) {
  h[row * n + col] = bad;
  Case c = factor_case(fmt::format("{} at {}, {}", bad, row, col), h, n, 0.01f);
  c.reference = [row](const Operands&) -> Expectation {
    return [row](const Operands& after) -> std::string {
      const int32_t found = after[4].as<int32_t>()[op::kNotFinite];
      if (found != static_cast<int32_t>(row) + 1) return fmt::format("found {}", found);
      Factored f = factored(after, 0);
      f.diagonal.assign(f.n, 1.0);
      std::string fault = check_order(f, true);
      if (fault.empty()) fault = check_diagonal_factor(f);
      return fault.empty() ? check_ordered(f, true) : fault;
    };
  };
  return c;
}

inline void append_odd_factors(std::vector<Case>& cases) {
  std::vector<float> dead = random_hessian(160, 500, 5);
  for (const size_t d : {0, 7, 159}) {
    for (size_t i = 0; i < 160; ++i) dead[i * 160 + d] = dead[d * 160 + i] = 0;
  }
  cases.push_back(factor_case("dead inputs", dead, 160, 0.05f, {Steps::kNone, 3}));
  for (const size_t n : {1, 33, 200}) {
    const auto all = static_cast<int32_t>(n);
    cases.push_back(factor_case("zeros", std::vector<float>(n * n, 0.0f), n, 0.01f, {Steps::kNone, all}));
  }
  // Equal inputs and fewer tokens than inputs: singular.
  for (const size_t n : {64, 200}) {
    for (const size_t tokens : {size_t{1}, n / 3}) {
      std::vector<float> h = random_hessian(n, tokens, n + tokens);
      for (size_t i = 0; i < n; ++i) h[i * n + 9] = h[i * n + 5];
      for (size_t i = 0; i < n; ++i) h[9 * n + i] = h[5 * n + i];
      const std::string name = fmt::format("singular, {} tokens", tokens);
      cases.push_back(factor_case(name, h, n, 1e-9f, {Steps::kSome, 0, INFINITY}));
      cases.push_back(factor_case(name, h, n, 0.01f, {Steps::kNone, 0, 0.02}));
    }
  }
  // Two eigenvalues, 3 and -1, of a block beside ones: m is 1 and the damping must come to more than 1.
  std::vector<float> raised = {1, 2, 0, 2, 1, 0, 0, 0, 1};
  cases.push_back(factor_case("needs damping 20", raised, 3, 0.2f, {Steps::kSome, 0, 1e-5}));
  std::vector<float> indefinite(40 * 40, 0.0f);
  for (size_t i = 0; i < 40; ++i) indefinite[i * 40 + i] = static_cast<float>(i + 1);
  indefinite[1] = indefinite[40] = 1e6f;
  cases.push_back(factor_case("indefinite", indefinite, 40, 0.01f, {Steps::kFails}));
  indefinite[7 * 40 + 7] = 0;
  cases.push_back(factor_case("indefinite with a dead input", indefinite, 40, 0.01f, {Steps::kFails, 1}));
  std::vector<float> equal(50 * 50, 0.1f);  // equal diagonals: the order is the index's
  for (size_t i = 0; i < 50; ++i) equal[i * 50 + i] = i % 3 == 0 ? 2.0f : 1.0f;
  cases.push_back(factor_case("equal diagonals", equal, 50, 0.01f));
}

inline std::vector<Case> factor_cases() {
  std::vector<Case> cases;
  for (const size_t n : {1, 2, 31, 32, 127, 128, 129, 256, 300}) {
    cases.push_back(factor_case("tokens", random_hessian(n, 3 * n + 5, n), n, 0.01f));
  }
  cases.push_back(factor_case("order not asked for", random_hessian(70, 90, 4), 70, 0.01f, {.ordered = false}));
  cases.push_back(large(factor_case("smooth", smooth_hessian(1100, 3), 1100, 0.01f)));
  for (const float size : {1e-9f, 1e-4f, 1e4f, 1e8f}) {
    cases.push_back(factor_case(fmt::format("size {}", size), random_hessian(96, 300, 8, size), 96, 0.01f));
  }
  append_odd_factors(cases);
  const std::vector<float> finite = random_hessian(150, 400, 2);
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    for (const auto& [row, col] : {std::pair<size_t, size_t>{0, 0}, {149, 149}, {3, 140}, {0, 1}, {148, 149}}) {
      cases.push_back(not_finite_factor_case(finite, 150, row, col, bad));
    }
  }
  cases.push_back(not_finite_factor_case(finite, 150, 4, 4, -1.0f));
  return cases;
}

enum class Counts { kOthers, kBoth, kNone };

// What each token counts, of two kinds.
struct HeldOutGains {
  std::vector<float> others, own, all;
};

inline HeldOutGains held_out_gains(size_t tokens, size_t all, Counts counts) {
  Rng rng(tokens);
  HeldOutGains gains{std::vector<float>(tokens), std::vector<float>(tokens), std::vector<float>(all)};
  for (size_t t = 0; t < tokens && counts != Counts::kNone; ++t) {
    const bool own = counts == Counts::kBoth && t % 3 == 1;
    (own ? gains.own : gains.others)[t] = std::exp(2.0f * static_cast<float>(normal(rng)));
  }
  for (float& g : gains.all) g = std::exp(2.0f * static_cast<float>(normal(rng)));
  return gains;
}

// What the rows from `first` on cost, from `y` (n, tokens) by `gains`; 1 where no token counts.
inline double held_out_cost(const std::vector<double>& y, const std::vector<float>& gains, double all,
                            const std::vector<float>& weights, size_t first) {
  const size_t tokens = gains.size(), last = std::min(weights.size(), first + op::kHeldOutRows);
  double cost = 0, sum = 0;
  for (size_t r = first; r < last; ++r) {
    sum += weights[r];
    for (size_t t = 0; t < tokens; ++t) cost += double{weights[r]} * gains[t] * y[r * tokens + t] * y[r * tokens + t];
  }
  const double counted = std::accumulate(gains.begin(), gains.end(), 0.0);
  return counted > 0 ? all / counted * cost / sum : 1;
}

// own_size: what is left of the factor's own tokens, beside what is left of others.
inline Case held_out_case(size_t n, size_t tokens, size_t all, Counts counts, float share = 1, float own_size = 0.6f) {
  const HeldOutGains gains = held_out_gains(tokens, all, counts);
  std::vector<float> weights(n), left = random_floats(n * tokens, n);
  Rng rng(n + tokens);
  for (float& w : weights) w = std::exp(3.0f * static_cast<float>(normal(rng)));
  for (size_t i = 0; i < left.size(); ++i) left[i] *= gains.own[i % tokens] > 0 ? own_size : 1;
  Case c{fmt::format("{} rows, {} tokens of {}, {}, share {}, own {}", n, tokens, all, static_cast<int>(counts), share,
                     own_size),
         {beside(operand(left, n, tokens), 1, 2), operand(gains.others, tokens, 1), operand(gains.own, tokens, 1),
          beside(operand(gains.all, all, 1), 2, 1), operand(weights, n, 1), unset(n, 1)},
         {}};
  c.op = [share](Backend&, std::span<const Tensor> t) {
    return op::HeldOutWeights{t[0], t[1], t[2], t[3], t[4], t[5], share};
  };
  c.reference = [=](const Operands& before) {
    const std::vector<double> y = before[0].values();
    const double total = std::accumulate(gains.all.begin(), gains.all.end(), 0.0);
    std::vector<double> wanted(n), distance(n);
    for (size_t r = 0; r < n; ++r) {
      const size_t first = r / op::kHeldOutRows * op::kHeldOutRows;
      const double cost = held_out_cost(y, gains.others, total, weights, first);
      const double own_cost = counts == Counts::kBoth ? held_out_cost(y, gains.own, total, weights, first) : cost;
      const double inputs = 1 - std::sqrt(std::min(1.0, own_cost / cost));  // for each token
      wanted[r] = weights[r] * cost * (1 - inputs) / (1 - double{share} * inputs);
      distance[r] = 2e-7 * wanted[r];
    }
    return within(5, std::move(wanted), std::move(distance));
  };
  return c;
}

inline std::vector<Case> held_out_cases() {
  using enum Counts;
  return {held_out_case(0, 32, 40, kOthers),
          held_out_case(1, 1, 1, kOthers),
          held_out_case(300, 64, 1000, kBoth),
          held_out_case(300, 64, 1000, kBoth, 0.75f),
          held_out_case(128, 33, 7, kBoth, 0.08f),
          held_out_case(129, 0, 100, kOthers),
          held_out_case(40, 32, 900, kNone),
          held_out_case(257, 500, 2000, kOthers, 0.1f),
          held_out_case(257, 500, 2000, kBoth, 0.1f, 0.1f),
          held_out_case(200, 96, 100, kBoth, 0.3f, 3.0f)};  // more is left of its own
}

}  // namespace bw::backend::conformance
