// Rounding of whole matrices in plain loops and double precision, to hold quantize_gptq and price_table against.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "backend/scale_grid.h"
#include "quant/host_side.h"
#include "quant/random_matrix.h"

namespace bw::quant {

inline constexpr float kDamping = 0.01f;

// A linear that is to be quantized.
struct Problem {
  Matrix<float> w;  // (out, in)
  Matrix<float> h;  // (in, in)
  HostFactor factor;
};

inline Problem make_problem(size_t out, size_t in, uint64_t seed, Spread spread = Spread::kGaussian) {
  Problem p{random_matrix(out, in, seed, 0.03f, spread), random_hessian(in, 2 * in + 10, seed), {}};
  p.factor = factorize_on(*test::make_device("cpu"), p.h, kDamping);
  return p;
}

// w (out, in) of which the device has made its rows.
inline backend::Tensor rows_on(backend::Backend& device, const Problem& p, const Factor& factor) {
  return transposed_in_order(device, upload(device, p.w), factor.order);
}

inline HostLinear quantize_on(backend::Backend& device, const Problem& p, const Layout& layout) {
  const Factor factor = upload(device, p.factor);
  const auto out = static_cast<uint32_t>(p.w.rows());
  return read_linear(device, quantize_gptq(device, rows_on(device, p, factor), out, factor, layout));
}

// tr(Δ H Δᵀ) of what would be stored in place of w, on the H that the factor was made from.
inline double real_error(const Problem& p, const Matrix<float>& stored) {
  Matrix<float> delta(p.w.rows(), p.w.cols());
  for (size_t i = 0; i < delta.span().size(); ++i) delta.span()[i] = p.w.span()[i] - stored.span()[i];
  const double mean = mean_diagonal(p.h.view());
  const double added = p.factor.report.identity ? 0 : static_cast<double>(p.factor.report.damping) * mean;
  return trace_error(delta.view(), p.h.view(), added, mean);
}

// The layouts that tests try on `in` rows.
inline std::vector<Layout> layouts_of(uint32_t in) {
  std::vector<Layout> layouts;
  for (const int bits : kBitWidths) {
    for (const uint32_t size : kGroupSizes) layouts.push_back(uniform_layout(in, bits, size));
  }
  if (in >= 96) {
    layouts.push_back({{{8, 32, 32}, {4, in - 64, 128}, {2, 32, 64}}});
    layouts.push_back({{{6, 64, 64}, {3, in - 64, 64}}});
    layouts.push_back({{{5, 32, 32}, {4, 32, 32}, {3, in - 64, 128}}});
  }
  return layouts;
}

// The scales of one group.
struct ChosenScales {
  Half scale_max;
  std::array<float, backend::kScaleCodes> scales;
  std::vector<uint8_t> codes;  // of each column
};

// Index of the scale with the least error in column c.
inline size_t best_scale(const backend::conformance::GroupRows& g, size_t c, std::span<const float> scales) {
  std::vector<double> errors;
  for (const float s : scales) errors.push_back(g.error(c, s));
  return static_cast<size_t>(std::min_element(errors.begin(), errors.end()) - errors.begin());
}

inline ChosenScales choose_scales(const backend::conformance::GroupRows& g) {
  const auto levels = static_cast<float>(backend::conformance::levels_of(g.bits));
  float top = 0;
  for (size_t c = 0; c < g.cols; ++c) {
    std::vector<float> trials;
    for (const float t : backend::conformance::kTrials) trials.push_back(g.top(c) / levels * t);
    top = std::max(top, std::min(trials[best_scale(g, c, trials)], 65504 / levels));
  }
  ChosenScales chosen{backend::scale_max_for(top), {}, std::vector<uint8_t>(g.cols)};
  chosen.scales = backend::code_scales(chosen.scale_max);
  for (size_t c = 0; c < g.cols; ++c) {
    chosen.codes[c] = g.top(c) == 0 ? 0 : static_cast<uint8_t>(best_scale(g, c, chosen.scales));
  }
  return chosen;
}

// GPTQ as its paper has it: row after row, each row's error fed forward to all rows after it. `feed` false: each weight
// is rounded to nearest.
inline HostLinear naive_rounding(const Problem& p, const Layout& layout, bool feed) {
  const size_t in = p.w.cols(), out = p.w.rows();
  std::vector<double> w(in * out);
  for (size_t r = 0; r < in; ++r) {
    for (size_t c = 0; c < out; ++c) w[r * out + c] = p.w(c, p.factor.input(r));
  }
  const std::vector<Group> groups = layout.groups();
  HostLinear q{layout,
               static_cast<uint32_t>(in),
               static_cast<uint32_t>(out),
               p.factor.order,
               Matrix<uint8_t>(in, out),
               Matrix<uint8_t>(groups.size(), out),
               {},
               0};
  for (size_t g = 0; g < groups.size(); ++g) {
    const Group& group = groups[g];
    const std::vector<float> rows(w.begin() + static_cast<ptrdiff_t>(group.first * out),
                                  w.begin() + static_cast<ptrdiff_t>((group.first + group.rows) * out));
    const std::span<const float> weights = std::span(p.factor.weights).subspan(group.first, group.rows);
    const ChosenScales chosen = choose_scales({rows, weights, group.rows, out, group.bits});
    q.scale_max.push_back(chosen.scale_max);
    std::copy(chosen.codes.begin(), chosen.codes.end(), q.scale_codes.view().row(g));
    for (size_t r = group.first; r < group.first + group.rows; ++r) {
      for (size_t c = 0; c < out; ++c) {
        const float scale = chosen.scales[chosen.codes[c]];
        const double level = backend::conformance::level_of(w[r * out + c], scale, group.bits);
        q.codes(r, c) = static_cast<uint8_t>(level + backend::conformance::levels_of(group.bits));
        const double e = (w[r * out + c] - round_to_half(static_cast<float>(level) * scale)) / p.factor.u(r, r);
        q.error += e * e;
        for (size_t j = r + 1; feed && j < in; ++j) w[j * out + c] -= e * p.factor.u(r, j);
      }
    }
  }
  return q;
}

// (out, in) weights of codes, as loaders compute them.
inline Matrix<float> naive_weights(const HostLinear& q) {
  Matrix<float> w(q.out, q.in);
  const std::vector<Group> groups = q.layout.groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    for (uint32_t r = groups[g].first; r < groups[g].first + groups[g].rows; ++r) {
      for (uint32_t c = 0; c < q.out; ++c) {
        const float s = static_cast<float>(q.scale_codes(g, c) + 1);
        const float scale = round_to_half(s * s * round_to_half(to_float(q.scale_max[g]) / 256));
        const float level = static_cast<float>(q.codes(r, c)) - static_cast<float>(1 << (groups[g].bits - 1));
        w(c, static_cast<size_t>(q.order[r])) = round_to_half(level * scale);
      }
    }
  }
  return w;
}

inline Matrix<float> round_to_nearest(const Problem& p, const Layout& layout) {
  return naive_weights(naive_rounding(p, layout, false));
}

}  // namespace bw::quant
