// Cases of RefineGroup.
#pragma once

#include <array>

#include "backend/cases/factor.h"
#include "backend/cases/rounding.h"

namespace bw::backend::conformance {

// Codes to begin with: those nearest to the targets; any; such that no single change lowers the error.
enum class Start : uint8_t { kNearest, kRandom, kSettled };

struct RefineSize {
  size_t n, cols;
  int bits;
  Start start = Start::kNearest;
  float size = 0.05f;  // of the targets
  Spread spread = Spread::kGaussian;

  std::string name() const {
    return fmt::format("{} x {}, {} bits, size {}, start {}, spread {}", n, cols, bits, size, static_cast<int>(start),
                       static_cast<int>(spread));
  }
};

// A group as it is given.
struct CodedGroup {
  size_t n, cols;
  int bits;
  std::vector<float> h;  // (n, n)
  std::array<float, kScaleCodes> scales;
  std::vector<uint8_t> scale_codes, codes;
  std::vector<float> error, gradient;

  float scale(size_t c) const { return scales[scale_codes[c]]; }
  double level(uint8_t code) const { return code - levels_of(bits); }
  double value(double level, size_t c) const { return round_to_half(static_cast<float>(level) * scale(c)); }
};

// H of a group that is a part of a larger matrix, damped.
inline std::vector<float> group_hessian(size_t n, uint64_t seed) {
  std::vector<float> h = random_hessian(n, 2 * n + 8, seed);
  float most = 0;
  for (size_t i = 0; i < n; ++i) most = std::max(most, h[i * n + i]);
  for (size_t i = 0; i < n; ++i) h[i * n + i] += 0.01f * most;
  return h;
}

// error = targets - values, gradient = H · error + what the rows of other groups add.
inline void derive(CodedGroup& g, std::span<const float> targets, std::span<const double> others) {
  for (size_t i = 0; i < g.error.size(); ++i) {
    g.error[i] = static_cast<float>(targets[i] - g.value(g.level(g.codes[i]), i % g.cols));
  }
  for (size_t i = 0; i < g.error.size(); ++i) {
    double sum = others[i];
    for (size_t j = 0; j < g.n; ++j) {
      sum += static_cast<double>(g.h[i / g.cols * g.n + j]) * g.error[j * g.cols + i % g.cols];
    }
    g.gradient[i] = static_cast<float>(sum);
  }
}

// A pass over the codes, step by step. Whether any has changed.
inline bool descend(CodedGroup& g) {
  bool changed = false;
  std::vector<double> gradient(g.gradient.begin(), g.gradient.end());
  for (size_t at = 0; at < gradient.size(); ++at) {
    const size_t i = at / g.cols, c = at % g.cols;
    const double curvature = g.h[i * g.n + i], value = g.value(g.level(g.codes[at]), c);
    const double level = level_of(value + gradient[at] / curvature, g.scale(c), g.bits);
    const double d = g.value(level, c) - value;
    if (!(d * (2 * gradient[at] - d * curvature) > 0)) continue;
    changed = true;
    g.codes[at] = static_cast<uint8_t>(level + levels_of(g.bits));
    for (size_t j = i + 1; j < g.n; ++j) gradient[j * g.cols + c] -= d * g.h[i * g.n + j];
  }
  return changed;
}

inline CodedGroup coded_group(const RefineSize& s, uint64_t seed, Half scale_max) {
  const size_t size = s.n * s.cols;
  const Operand weights = random_weights(s.n, s.cols, seed, s.size, s.spread);
  const auto targets = weights.as<float>();
  CodedGroup g{s.n,
               s.cols,
               s.bits,
               group_hessian(s.n, seed),
               code_scales(scale_max),
               random_codes(s.cols, 16, seed + 1),
               random_codes(size, 1u << s.bits, seed + 2),
               std::vector<float>(size),
               std::vector<float>(size)};
  for (size_t i = 0; i < size && s.start != Start::kRandom; ++i) {
    g.codes[i] = static_cast<uint8_t>(level_of(targets[i], g.scale(i % s.cols), s.bits) + levels_of(s.bits));
  }
  std::vector<double> others(size);
  Rng rng(seed + 3);
  for (size_t i = 0; i < size; ++i) others[i] = 0.02 * s.size * normal(rng) * g.h[i / s.cols * (s.n + 1)];
  derive(g, targets, others);
  for (int pass = 0; s.start == Start::kSettled && descend(g); ++pass) {
    BW_CHECK(pass < 100);
    derive(g, targets, others);
  }
  return g;
}

// Column c must follow, step by step, from the levels that the device chose, and these must be the nearest ones, or
// those that were there, where they would not lower the error. `gained` grows by what the error fell.
class RefinedColumn {
 public:
  RefinedColumn(const CodedGroup& g, const Operands& after, size_t c) : g_(g), after_(after), c_(c) {
    for (size_t i = 0; i < g.n; ++i) gradient_.push_back(g.gradient[i * g.cols + c]);
  }

  std::string run(double& gained) {
    for (size_t i = 0; i < g_.n; ++i) {
      if (std::string fault = step(i, gained); !fault.empty())
        return fmt::format("row {}, column {}: {}", i, c_, fault);
    }
    return {};
  }

 private:
  std::string step(size_t i, double& gained) {
    constexpr double kSlack = 1e-3;  // of a level, by which devices that round differently may differ
    const size_t at = i * g_.cols + c_;
    const double curvature = g_.h[i * g_.n + i], levels = levels_of(g_.bits), scale = g_.scale(c_);
    const double old = g_.level(g_.codes[at]), chosen = g_.level(after_[4].as<uint8_t>()[at]);
    const double value = g_.value(old, c_), best = value + gradient_[i] / curvature;
    const double exact = scale > 0 ? std::clamp(best / scale, -levels, levels - 1) : old;
    const auto change_to = [&](double level) { return g_.value(level, c_) - value; };
    const auto gain_of = [&](double d) { return d * (2 * gradient_[i] - d * curvature); };
    const auto allowed = [&](double d) { return 2 * std::abs(d) * curvature * kSlack * scale; };
    const double d = change_to(chosen), other = change_to(std::nearbyint(exact));
    const auto fault = [&](std::string_view what) {
      return fmt::format("{} (level {}, before {}, exactly {:.6g})", what, chosen, old, exact);
    };
    if (chosen != old && !(std::abs(chosen - exact) <= 0.5 + kSlack)) return fault("not the nearest level");
    if (chosen != old && !(gain_of(d) >= -allowed(d))) return fault("the error has grown");
    if (chosen == old && !(gain_of(other) <= allowed(other))) return fault("left as it was");
    const double error = g_.error[at] - d, got = after_[5].as<float>()[at];
    if (!(std::abs(got - error) <= (d == 0 ? 0 : 1e-6 * (std::abs(error) + std::abs(d))))) {
      return fmt::format("error {:.9g}, wanted {:.9g}", got, error);
    }
    gained += gain_of(d);
    for (size_t j = i + 1; j < g_.n; ++j) gradient_[j] -= d * g_.h[i * g_.n + j];
    return {};
  }

  const CodedGroup& g_;
  const Operands& after_;
  size_t c_;
  std::vector<double> gradient_;
};

inline Expectation refined(CodedGroup g, double sum) {
  return [=](const Operands& after) -> std::string {
    double gained = 0;
    for (size_t c = 0; c < g.cols; ++c) {
      if (std::string fault = RefinedColumn(g, after, c).run(gained); !fault.empty()) return fault;
    }
    return within(6, sum - gained, 1e-5 * gained + 1e-14)(after);
  };
}

inline Case refine_group_case(const RefineSize& s, uint64_t seed, float scale_max) {
  constexpr double kSum = 2.0;
  const Half stored = to_half(scale_max);
  const CodedGroup g = coded_group(s, seed, stored);
  Case c{fmt::format("{}, scale_max {}", s.name(), scale_max),
         {beside(operand(g.gradient, s.n, s.cols), 1, 2), beside(operand(g.h, s.n, s.n), 2, 3),
          operand(std::vector<Half>{stored}, 1, 1), beside(operand(g.scale_codes, 1, s.cols), 1, 1),
          beside(operand(g.codes, s.n, s.cols), 2, 1), beside(operand(g.error, s.n, s.cols), 1, 0), sum_of(kSum)},
         {}};
  c.op = [bits = s.bits](Backend&, std::span<const Tensor> t) {
    return op::RefineGroup{t[0], t[1], t[2], t[3], bits, t[4], t[5], t[6]};
  };
  // Nothing can be bettered, or there are no other values.
  const bool settled = s.start == Start::kSettled || scale_max == 0;
  c.reference = [=](const Operands& before) {
    if (!settled) return refined(g, kSum);
    return all_of({refined(g, kSum), same_as(4, before[4]), same_as(5, before[5]), same_as(6, before[6])});
  };
  return c;
}

// With the scale_max that targets of this size want.
inline Case refine_group_case(const RefineSize& s, uint64_t seed) {
  return refine_group_case(s, seed, std::min(4 * s.size, 65504.0f) / static_cast<float>(levels_of(s.bits)));
}

inline std::vector<Case> refine_group_cases() {
  std::vector<Case> cases;
  uint64_t seed = 0;
  for (const size_t n : {1, 2, 31, 32, 48, 96, 128}) {
    for (const int bits : kWidthsInBits) {
      for (const Start start : {Start::kNearest, Start::kRandom, Start::kSettled}) {
        const size_t cols = 32 + 32 * (++seed % 3);
        if (n != 32 && seed % 4 != 0) continue;  // a sample: all widths, sizes and starts, but not with each other
        cases.push_back(refine_group_case({n, cols, bits, start}, seed));
      }
    }
  }
  for (const int bits : kWidthsInBits) {
    cases.push_back(large(refine_group_case({64, 544, bits}, 7)));
    for (const float size : {1e-3f, 300.0f}) {  // with scales that are subnormal halves, and large ones
      cases.push_back(refine_group_case({33, 32, bits, Start::kRandom, size}, 8));
    }
    for (const Start start : {Start::kNearest, Start::kRandom}) {  // all scales are 0
      cases.push_back(refine_group_case({32, 32, bits, start}, 9, 0.0f));
    }
    for (const Spread spread : {Spread::kLaplace, Spread::kHeavyTailed, Spread::kOneOutlier}) {
      cases.push_back(refine_group_case({64, 64, bits, Start::kNearest, 0.02f, spread}, 10));
    }
  }
  return cases;
}

}  // namespace bw::backend::conformance
