// Cases of RoundGroup.
#pragma once

#include "backend/cases/rounding.h"

namespace bw::backend::conformance {

struct RoundedGroup {
  size_t n, rest, cols;
  int bits;
  std::span<const float> panel, u, weights, scales;  // as given
};

// Column c must follow, step by step, from the levels that the device chose, and these must be the nearest ones.
class ColumnCheck {
 public:
  ColumnCheck(const RoundedGroup& g, const Operands& after, size_t c) : g_(g), after_(after), c_(c) {
    for (size_t r = 0; r < g.n + g.rest; ++r) w_.push_back(g.panel[r * g.cols + c]);
  }

  std::string run() {
    const uint8_t code = after_[5].as<uint8_t>()[c_];
    if (code > 15) return fmt::format("column {}: scale code {}", c_, code);
    const GroupRows rows{g_.panel.first(g_.n * g_.cols), g_.weights, g_.n, g_.cols, g_.bits};
    const double chosen = rows.error(c_, g_.scales[code]);
    if (rows.top(c_) == 0 && code != 0) return fmt::format("column {} of zeros: scale code {}", c_, code);
    if (rows.top(c_) != 0 && !nearly_best(chosen, least_error(rows, c_, g_.scales))) {
      return fmt::format("column {}: scale code {} is not the best", c_, code);
    }
    for (size_t r = 0; r < g_.n; ++r) {
      if (std::string fault = round_row(r, g_.scales[code]); !fault.empty()) return fault;
    }
    return {};
  }

  double squared_errors() const { return squared_errors_; }
  // Of rows past the group.
  std::span<const double> corrected() const { return std::span(w_).subspan(g_.n); }

 private:
  std::string round_row(size_t r, float scale) {
    const double levels = levels_of(g_.bits), level = after_[4].as<uint8_t>()[r * g_.cols + c_] - levels;
    const double exact = scale > 0 ? std::clamp(w_[r] / scale, -levels, levels - 1) : 0;
    const auto fault = [&](std::string_view what) {
      return fmt::format("row {}, column {}: {} (level {}, exactly {:.6g})", r, c_, what, level, exact);
    };
    if (!(std::abs(level - exact) <= 0.5 + 1e-2)) return fault("not the nearest level");
    const double stored = round_to_half(static_cast<float>(level) * scale);
    const size_t width = g_.n + g_.rest;
    const double e = (w_[r] - stored) / g_.u[r * width + r], got = after_[6].as<float>()[r * g_.cols + c_];
    if (!(std::abs(got - e) <= 1e-5 * (1 + std::abs(w_[r])))) return fault(fmt::format("error {}, wanted {}", got, e));
    for (size_t j = r + 1; j < width; ++j) w_[j] -= e * g_.u[r * width + j];
    squared_errors_ += e * e;
    return {};
  }

  const RoundedGroup& g_;
  const Operands& after_;
  size_t c_;
  std::vector<double> w_;
  double squared_errors_ = 0;
};

inline std::string check_rounded(const RoundedGroup& g, const Operands& after) {
  std::vector<double> rest(g.rest * g.cols);
  double error = 2.0;
  for (size_t c = 0; c < g.cols; ++c) {
    ColumnCheck column(g, after, c);
    if (std::string fault = column.run(); !fault.empty()) return fault;
    error += column.squared_errors();
    for (size_t r = 0; r < g.rest; ++r) rest[r * g.cols + c] = column.corrected()[r];
  }
  const double got = after[7].as<double>()[0];
  if (!(std::abs(got - error) <= 1e-3 * (error - 2.0) + 1e-6)) return fmt::format("Σ e² {}, wanted {}", got, error);
  Operands below = after;  // rows of the group are used up: they hold no meaning afterwards
  const auto panel = after[0].as<float>().subspan(g.n * g.cols);
  below[0] = operand(std::vector<float>(panel.begin(), panel.end()), g.rest, g.cols);
  return close_to(0, rest, 1e-8)(below);
}

// U of the group's rows; what lies left of the diagonal must not be read.
inline Operand random_factor(size_t n, size_t width, uint64_t seed, bool unit) {
  std::vector<float> u = random_floats(n * width, seed, unit ? 0.0f : 0.08f);
  for (size_t i = 0; i < n; ++i) {
    u[i * width + i] = unit ? 1.0f : 0.5f + std::abs(u[i * width + i]);
    std::fill_n(u.begin() + static_cast<ptrdiff_t>(i * width), i, std::nanf(""));
  }
  return operand(u, n, width);
}

inline Case round_group_case(Operand panel, size_t n, int bits, float scale_max, bool unit_factor = false) {
  const size_t cols = panel.cols, rest = panel.rows - n;
  const auto grid = code_scales(to_half(scale_max));
  Case c{fmt::format("{} + {} x {}, {} bits, scale_max {}", n, rest, cols, bits, scale_max),
         {beside(panel, 1, 2), beside(random_factor(n, n + rest, n + rest, unit_factor), 0, 3), row_weights(n, n),
          beside(operand(std::vector<float>(grid.begin(), grid.end()), 1, 16), 1, 0),
          beside(unset(n, cols, DType::kU8), 2, 1), beside(unset(1, cols, DType::kU8), 1, 1),
          beside(unset(n, cols), 1, 0), sum_of(2.0)},
         {}};
  c.op = [bits](Backend&, std::span<const Tensor> t) {
    return op::RoundGroup{t[0], t[1], t[2], bits, t[3], t[4], t[5], t[6], t[7]};
  };
  c.reference = [=](const Operands& before) -> Expectation {
    return [=](const Operands& after) {
      const RoundedGroup g{n,
                           rest,
                           cols,
                           bits,
                           before[0].as<float>(),
                           before[1].as<float>(),
                           before[2].as<float>(),
                           before[3].as<float>()};
      return check_rounded(g, after);
    };
  };
  return c;
}

// The scale_max that weights of this size want.
inline float usual_scale_max(float size, int bits) {
  return std::min(4 * size, 65504.0f) / static_cast<float>(levels_of(bits));
}

inline std::vector<Case> round_group_cases() {
  std::vector<Case> cases;
  uint64_t seed = 0;
  for (const size_t n : {1, 31, 32, 48, 96, 128}) {
    for (const size_t rest : {0, 1, 64}) {
      for (const int bits : kWidthsInBits) {
        const size_t cols = 32 + 32 * (++seed % 3);
        if (n != 32 && seed % 5 != 0) continue;  // a sample: all widths and sizes, but not with each other
        cases.push_back(
            round_group_case(random_weights(n + rest, cols, seed, 0.05f), n, bits, usual_scale_max(0.05f, bits)));
      }
    }
  }
  for (const int bits : kWidthsInBits) {
    cases.push_back(
        large(round_group_case(random_weights(64 + 32, 544, 7, 0.05f), 64, bits, usual_scale_max(0.05f, bits))));
    cases.push_back(round_group_case(random_weights(32 + 1, 32, 7, 0.05f), 32, bits, 0.0f));  // all scales are 0
    for (const Spread spread : {Spread::kLaplace, Spread::kHeavyTailed, Spread::kOneOutlier}) {
      cases.push_back(
          round_group_case(random_weights(96, 64, 9, 0.02f, spread), 64, bits, usual_scale_max(0.02f, bits)));
    }
  }
  return cases;
}

}  // namespace bw::backend::conformance
