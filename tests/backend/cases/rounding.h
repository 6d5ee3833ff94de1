// Cases of GroupScale, PriceGroups, RoundGroup and Dequantize.
//
// Which scale, code or level is nearest is decided differently by devices that round differently, where two are all but
// equally near. So a result is not compared with the reference's choice, but checked: every choice must be (nearly) as
// good as the best, and all else must follow from it.
#pragma once

#include "backend/cases/case.h"
#include "backend/scale_grid.h"

namespace bw::backend::conformance {

// Steps of max|w| / 2^(bits-1) that are tried as scales.
inline constexpr float kTrials[] = {1.08f, 1.0f, 0.93f, 0.86f, 0.79f, 0.72f, 0.65f, 0.58f, 0.51f, 0.44f, 0.37f};
inline constexpr int kWidthsInBits[] = {8, 6, 5, 4, 3, 2};

inline double levels_of(int bits) { return 1 << (bits - 1); }

inline double level_of(double x, double scale, int bits) {
  return scale > 0 ? std::clamp(std::nearbyint(x / scale), -levels_of(bits), levels_of(bits) - 1) : 0;
}

// Rows of weights to be rounded as one group, and what each row weighs.
struct GroupRows {
  std::span<const float> w;  // (rows, cols)
  std::span<const float> weights;
  size_t rows, cols;
  int bits;

  double error(size_t c, double scale) const {
    double sum = 0;
    for (size_t r = 0; r < rows; ++r) {
      const double x = w[r * cols + c], e = x - level_of(x, scale, bits) * scale;
      sum += e * e * weights[r];
    }
    return sum;
  }
  float top(size_t c) const {
    float most = 0;
    for (size_t r = 0; r < rows; ++r) most = std::max(most, std::abs(w[r * cols + c]));
    return most;
  }
};

// `chosen` may be this much worse than `best`.
inline bool nearly_best(double chosen, double best) { return chosen <= best * (1 + 1e-4) + 1e-30; }

// The scales that column c may want: those nearly as good as the best trial.
inline std::vector<float> wanted_scales(const GroupRows& g, size_t c) {
  const float unit = g.top(c) * static_cast<float>(1 / levels_of(g.bits));
  const float most = static_cast<float>(65504 / levels_of(g.bits));
  std::vector<double> errors;
  for (const float t : kTrials) errors.push_back(g.error(c, unit * t));
  const double best = *std::min_element(errors.begin(), errors.end());
  std::vector<float> scales;
  for (size_t i = 0; i < errors.size(); ++i) {
    if (nearly_best(errors[i], best)) scales.push_back(std::min(unit * kTrials[i], most));
  }
  return scales;
}

// The largest scales that the columns together may want.
inline std::vector<float> wanted_tops(const GroupRows& g) {
  float least = 0;
  std::vector<float> all;
  for (size_t c = 0; c < g.cols; ++c) {
    const std::vector<float> scales = wanted_scales(g, c);
    least = std::max(least, *std::min_element(scales.begin(), scales.end()));
    all.insert(all.end(), scales.begin(), scales.end());
  }
  std::erase_if(all, [least](float s) { return s < least; });
  return all;
}

// The least error of column c with any of the 16 scales.
inline double least_error(const GroupRows& g, size_t c, std::span<const float> scales) {
  double best = std::numeric_limits<double>::infinity();
  for (const float s : scales) best = std::min(best, g.error(c, s));
  return best;
}

enum class Spread : uint8_t { kGaussian, kLaplace, kHeavyTailed, kOneOutlier };

// Random numbers about `size` large. kOneOutlier: one value of 12 sizes in every column.
inline std::vector<float> spread_floats(size_t rows, size_t cols, uint64_t seed, float size, Spread spread) {
  Rng rng(seed);
  std::vector<float> w(rows * cols);
  for (float& x : w) {
    double v = normal(rng);
    if (spread == Spread::kLaplace) v = (v < 0 ? 1 : -1) * std::log(1.0 - rng.next_double());
    if (spread == Spread::kHeavyTailed) v /= std::sqrt(0.2 + std::pow(normal(rng), 2));
    x = static_cast<float>(v) * size;
  }
  if (spread != Spread::kOneOutlier || rows == 0) return w;
  for (size_t c = 0; c < cols; ++c) w[rng.below(static_cast<uint32_t>(rows)) * cols + c] = 12 * size;
  return w;
}

// The same, with a column of zeros, a large one and a small one. `cols`: a multiple of 32.
inline Operand random_weights(size_t rows, size_t cols, uint64_t seed, float size, Spread spread = Spread::kGaussian) {
  std::vector<float> w = spread_floats(rows, cols, seed, size, spread);
  for (size_t first = 0; first < w.size(); first += cols) {
    w[first + 3] = 0;
    w[first + 17] *= 40;
    w[first + 30] *= 0.01f;
  }
  return operand(w, rows, cols);
}

inline Operand row_weights(size_t rows, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> w(rows);
  for (float& x : w) x = static_cast<float>(std::exp(1.5 * normal(rng)));
  return operand(w, rows, 1);
}

inline Case group_scale_case(Operand rows, int bits) {
  const size_t n = rows.rows, cols = rows.cols;
  Case c{fmt::format("{} x {}, {} bits", n, cols, bits),
         {beside(rows, 1, 2), row_weights(n, n + cols), beside(unset(1, cols), 1, 1), unset(1, 1, DType::kF16),
          beside(unset(1, 16), 1, 0)},
         {}};
  c.op = [bits](Backend&, std::span<const Tensor> t) { return op::GroupScale{t[0], t[1], bits, t[2], t[3], t[4]}; };
  c.reference = [=](const Operands& before) -> Expectation {
    const GroupRows g{before[0].as<float>(), before[1].as<float>(), n, cols, bits};
    const std::vector<float> tops = wanted_tops(g);
    return [tops](const Operands& after) -> std::string {
      const Half stored = after[3].as<Half>()[0];
      const auto fits = [stored](float top) { return scale_max_for(top) == stored; };
      if (!std::any_of(tops.begin(), tops.end(), fits)) return fmt::format("scale_max {}", to_float(stored));
      const auto scales = code_scales(stored);
      const auto got = after[4].as<float>();
      return std::equal(scales.begin(), scales.end(), got.begin()) ? "" : "the scales are not those of scale_max";
    };
  };
  return c;
}

inline std::vector<Case> group_scale_cases() {
  std::vector<Case> cases;
  constexpr float kSizes[] = {1e-6f, 0.02f, 300.0f};
  uint64_t seed = 100;
  for (const size_t rows : {1, 31, 32, 48, 128}) {
    for (const size_t cols : {32, 64, 96, 320}) {
      for (const int bits : kWidthsInBits) {
        ++seed;
        cases.push_back(group_scale_case(random_weights(rows, cols, seed, kSizes[seed % 7 % 3]), bits));
      }
    }
  }
  for (const int bits : kWidthsInBits) {  // beyond what halves can hold, and nothing at all
    cases.push_back(group_scale_case(random_weights(64, 32, 4, 60000), bits));
    cases.push_back(group_scale_case(filled(64, 32, 0.0f), bits));
    for (const Spread spread : {Spread::kLaplace, Spread::kHeavyTailed, Spread::kOneOutlier}) {
      cases.push_back(group_scale_case(random_weights(96, 64, 9, 0.02f, spread), bits));
    }
  }
  return cases;
}

// Errors of group `g` for each scale that its columns together may want.
inline std::vector<double> possible_prices(const GroupRows& g) {
  std::vector<Half> maxima;
  for (const float top : wanted_tops(g)) maxima.push_back(scale_max_for(top));
  std::sort(maxima.begin(), maxima.end());
  maxima.erase(std::unique(maxima.begin(), maxima.end()), maxima.end());
  std::vector<double> prices;
  for (const Half scale_max : maxima) {
    const auto scales = code_scales(scale_max);
    double sum = 0;
    for (size_t c = 0; c < g.cols; ++c) sum += least_error(g, c, scales);
    prices.push_back(sum);
  }
  return prices;
}

inline Case price_case(Operand rows, std::vector<int> widths, std::vector<uint32_t> sizes) {
  const size_t in = rows.rows, cols = rows.cols;
  const uint32_t smallest = *std::min_element(sizes.begin(), sizes.end());
  Case c{fmt::format("{} x {}, {} widths, {} sizes", in, cols, widths.size(), sizes.size()),
         {beside(rows, 2, 1), row_weights(in, in),
          beside(unset(widths.size() * sizes.size(), (in + smallest - 1) / smallest + 1, DType::kF64), 1, 1)},
         {}};
  c.op = [=](Backend&, std::span<const Tensor> t) { return op::PriceGroups{t[0], t[1], widths, sizes, t[2]}; };
  c.reference = [=](const Operands& before) -> Expectation {
    std::vector<std::vector<double>> prices;  // of each defined element of `errors`, in order
    for (const int bits : widths) {
      for (const uint32_t size : sizes) {
        for (size_t first = 0; first < in; first += size) {
          const size_t n = std::min<size_t>(size, in - first);
          prices.push_back(possible_prices({before[0].as<float>().subspan(first * cols, n * cols),
                                            before[1].as<float>().subspan(first, n), n, cols, bits}));
        }
      }
    }
    return [=](const Operands& after) -> std::string {
      const auto errors = after[2].as<double>();
      size_t at = 0;
      for (size_t row = 0; row < after[2].rows; ++row) {
        for (size_t group = 0; group * sizes[row % sizes.size()] < in; ++group, ++at) {
          const double got = errors[row * after[2].cols + group];
          const auto fits = [got](double price) { return std::abs(got - price) <= 2e-4 * price + 1e-30; };
          if (std::any_of(prices[at].begin(), prices[at].end(), fits)) continue;
          return fmt::format("row {}, group {}: {:.6g}, wanted {:.6g}", row, group, got, prices[at][0]);
        }
      }
      return {};
    };
  };
  return c;
}

inline std::vector<Case> price_cases() {
  const std::vector<int> all(std::begin(kWidthsInBits), std::end(kWidthsInBits));
  std::vector<Case> cases = {price_case(random_weights(160, 64, 1, 0.03f), all, {32, 64, 128}),
                             price_case(random_weights(1, 32, 2, 0.03f), all, {32}),
                             price_case(random_weights(32, 32, 3, 300.0f), {4}, {32}),
                             price_case(random_weights(33, 96, 4, 1e-6f), {8, 2}, {128, 32}),
                             price_case(random_weights(0, 32, 5, 1.0f), all, {32, 64}),
                             price_case(random_weights(128, 320, 6, 0.02f), {3, 5}, {64})};
  for (const Spread spread : {Spread::kLaplace, Spread::kHeavyTailed, Spread::kOneOutlier}) {
    cases.push_back(price_case(random_weights(96, 64, 9, 0.02f, spread), all, {32, 128}));
  }
  return cases;
}

inline Case dequantize_case(size_t out, size_t cols, size_t n, size_t in, int bits, uint32_t group_size) {
  const size_t groups = (n + group_size - 1) / group_size;
  Rng rng(out + n);
  std::vector<Half> maxima(groups);
  for (Half& m : maxima) m = Half(static_cast<uint16_t>(0x1400 + rng.below(0x2400)));
  if (groups > 1) maxima[1] = Half(0);
  std::vector<int32_t> order = random_order(in, n);
  order.resize(n);
  Case c{fmt::format("out {}, {} of {} rows, {} bits, groups of {}", out, n, in, bits, group_size),
         {beside(operand(random_codes(n * cols, 1u << bits, 1), n, cols), 1, 2),
          beside(operand(random_codes(groups * cols, 16, 2), groups, cols), 3, 1),
          beside(operand(maxima, groups, 1), 0, 1), operand(order, n, 1), beside(random_operand(out, in, 3), 1, 1)},
         {}};
  c.op = [=](Backend&, std::span<const Tensor> t) {
    return op::Dequantize{t[0], t[1], t[2], t[3], bits, group_size, t[4]};
  };
  c.reference = [=](const Operands& before) {
    const auto codes = before[0].as<uint8_t>(), scale_codes = before[1].as<uint8_t>();
    std::vector<float> w(before[4].as<float>().begin(), before[4].as<float>().end());
    for (size_t r = 0; r < n; ++r) {
      for (size_t o = 0; o < out; ++o) {
        const float s = static_cast<float>(scale_codes[r / group_size * cols + o] + 1);
        const float scale = round_to_half(s * s * round_to_half(to_float(maxima[r / group_size]) / 256));
        const float level = static_cast<float>(codes[r * cols + o]) - static_cast<float>(levels_of(bits));
        w[o * in + static_cast<size_t>(order[r])] = round_to_half(level * scale);
      }
    }
    return close_to(4, {w.begin(), w.end()}, 0);
  };
  return c;
}

inline std::vector<Case> dequantize_cases() {
  std::vector<Case> cases;
  for (const int bits : kWidthsInBits) {
    for (const size_t out : {1, 31, 32, 33, 64, 300}) {
      const size_t cols = (out + 31) / 32 * 32;
      cases.push_back(dequantize_case(out, cols, 96, 96, bits, 32));
      cases.push_back(dequantize_case(out, cols, 160, 352, bits, 128));
      cases.push_back(dequantize_case(out, out, 5, 7, bits, 64));
    }
    cases.push_back(dequantize_case(3, 32, 0, 4, bits, 32));
  }
  return cases;
}

}  // namespace bw::backend::conformance
