// Cases of RmsNormGradient, GatedActivationGradient, AttentionGradient and SampledGradient.
#pragma once

#include <numeric>

#include "backend/cases/attention.h"
#include "backend/cases/case.h"
#include "backend/cases/elementwise.h"
#include "backend/cases/logits.h"

namespace bw::backend::conformance {

struct NormGradientSize {
  size_t rows, n, runs;
  bool accumulate, in_place;  // in place: dx is dy
};

inline Case rms_norm_gradient_case(NormGradientSize s) {
  const size_t cols = s.runs * s.n;
  Case c{fmt::format("{} x {} runs of {}, accumulate {}, in place {}", s.rows, s.runs, s.n, s.accumulate, s.in_place),
         {beside(random_operand(s.rows, cols, s.n, 3.0f), 1, 2), random_operand(1, s.n, s.n + 1),
          beside(random_operand(s.rows, cols, s.n + 2), 0, 1),
          beside(s.accumulate ? random_operand(s.rows, cols, s.n + 3) : unset(s.rows, cols), 2, 1)},
         {}};
  const size_t result = s.in_place ? 2 : 3;
  c.op = [=](Backend&, std::span<const Tensor> t) {
    return op::RmsNormGradient{t[0], t[1], 1e-5f, t[2], t[result], s.accumulate};
  };
  c.reference = [=](const Operands& before) {
    const std::vector<double> x = before[0].values(), w = before[1].values(), dy = before[2].values();
    std::vector<double> wanted = s.accumulate ? before[result].values() : std::vector<double>(x.size());
    std::vector<double> distance(x.size());
    for (size_t first = 0; first < x.size(); first += s.n) {
      double squares = 0, sum = 0, size = 0;
      for (size_t i = 0; i < s.n; ++i) {
        const double term = w[i] * dy[first + i] * x[first + i];
        squares += x[first + i] * x[first + i];
        sum += term;
        size += std::abs(term);
      }
      const double n = static_cast<double>(s.n), r = 1 / std::sqrt(squares / n + 1e-5f);
      for (size_t i = first; i < first + s.n; ++i) {
        const double across = r * w[i - first] * dy[i], along = x[i] * r * r * r / n;
        distance[i] = 2e-6 * (std::abs(wanted[i]) + std::abs(across) + std::abs(along) * size);
        wanted[i] += across - along * sum;
      }
    }
    return within(result, wanted, distance);
  };
  return c;
}

inline std::vector<Case> rms_norm_gradient_cases() {
  std::vector<Case> cases;
  for (const size_t n : kWidths) {
    for (const size_t runs : {1, 3}) cases.push_back(rms_norm_gradient_case({5, n, runs, runs == 3, false}));
  }
  for (const bool accumulate : {false, true}) {
    cases.push_back(rms_norm_gradient_case({0, 8, 1, accumulate, true}));
    cases.push_back(rms_norm_gradient_case({3, 65, 2, accumulate, true}));
    cases.push_back(rms_norm_gradient_case({2, 5000, 1, accumulate, false}));
  }
  cases.push_back(rms_norm_gradient_case({1, 5, 1, false, false}));
  cases.back().name = "zeros";
  cases.back().operands[0] = filled(1, 5, 0.0f);
  return cases;
}

inline double activation_slope(double x, ActivationKind kind) {
  const double s = 1 / (1 + std::exp(-x)), root = std::sqrt(2 / M_PI);
  switch (kind) {
    case ActivationKind::kSilu:
      return s + x * s * (1 - s);
    case ActivationKind::kGelu:
      return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    case ActivationKind::kGeluTanh: {
      const double t = std::tanh(root * (x + 0.044715 * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
    }
  }
  return 0;
}

// Which operands dgate and dup are written over.
struct GatedPlaces {
  enum Dgate : uint8_t { kOwn, kGate, kDy } dgate = kOwn;
  bool dup_is_up = false;
};

inline Case activation_gradient_case(size_t rows, size_t cols, ActivationKind kind, GatedPlaces places) {
  Case c{fmt::format("{} x {}, kind {}, dgate at {}, dup is up {}", rows, cols, static_cast<int>(kind),
                     static_cast<int>(places.dgate), places.dup_is_up),
         {beside(random_operand(rows, cols, cols, 8.0f), 0, 1), beside(random_operand(rows, cols, cols + 1), 1, 1),
          beside(random_operand(rows, cols, cols + 2), 2, 0), beside(unset(rows, cols), 0, 3),
          beside(unset(rows, cols), 1, 0)},
         {}};
  const size_t dgate = places.dgate == GatedPlaces::kOwn ? 3 : places.dgate == GatedPlaces::kGate ? 0 : 2;
  const size_t dup = places.dup_is_up ? 1 : 4;
  c.op = [=](Backend&, std::span<const Tensor> t) {
    return op::GatedActivationGradient{t[0], t[1], kind, t[2], t[dgate], t[dup]};
  };
  c.reference = [=](const Operands& before) {
    const std::vector<double> gate = before[0].values(), up = before[1].values(), dy = before[2].values();
    const size_t n = gate.size();
    std::vector<double> to_gate(n), to_up(n), gate_distance(n), up_distance(n);
    for (size_t i = 0; i < n; ++i) {
      to_gate[i] = dy[i] * up[i] * activation_slope(gate[i], kind);
      to_up[i] = dy[i] * activated(gate[i], kind);
      // Slopes and activations are sums of terms up to 1 and up to the gate. A gate that saturates leaves nothing over.
      const double size = std::abs(gate[i]) > 80 ? 0 : 1 + std::abs(gate[i]);
      gate_distance[i] = 1e-30 + 1e-6 * (std::abs(to_gate[i]) + size * std::abs(dy[i] * up[i]));
      up_distance[i] = 1e-30 + 1e-6 * (std::abs(to_up[i]) + size * std::abs(dy[i]));
    }
    return all_of({within(dgate, to_gate, gate_distance), within(dup, to_up, up_distance)});
  };
  return c;
}

inline std::vector<Case> activation_gradient_cases() {
  std::vector<Case> cases;
  for (const ActivationKind kind : {ActivationKind::kSilu, ActivationKind::kGelu, ActivationKind::kGeluTanh}) {
    for (const size_t n : kWidths) cases.push_back(activation_gradient_case(2, n, kind, {}));
    for (const auto dgate : {GatedPlaces::kOwn, GatedPlaces::kGate, GatedPlaces::kDy}) {
      cases.push_back(activation_gradient_case(5, 33, kind, {dgate, true}));
      cases.push_back(activation_gradient_case(3, 130, kind, {dgate, false}));
    }
    cases.push_back(activation_gradient_case(70, 1000, kind, {GatedPlaces::kGate, true}));
    cases.push_back(activation_gradient_case(0, 8, kind, {}));
    std::vector<float> gate;
    for (const float x : {-200.0f, 200.0f, -1e4f, 1e4f, -88.7f, 88.7f, -104.0f, 0.0f}) gate.insert(gate.end(), 5, x);
    cases.push_back(activation_gradient_case(1, gate.size(), kind, {}));
    cases.back().name = fmt::format("saturated, kind {}", static_cast<int>(kind));
    cases.back().operands[0] = operand(gate, 1, gate.size());
  }
  return cases;
}

// Gradients to q, k and v of one attention.
struct AttentionGradients {
  std::vector<double> dq, dk, dv;
};

// Of head `head` of token t, added to `sums`.
inline void attend_back(const AttentionSize& a, const std::vector<std::vector<double>>& q_k_v_dout, size_t t,
                        size_t head, AttentionGradients& sums) {
  const std::vector<double>&q = q_k_v_dout[0], &k = q_k_v_dout[1], &v = q_k_v_dout[2], &dout = q_k_v_dout[3];
  const AttentionShape shape = a.shape();
  const size_t d = a.head_dim, query = (t * a.heads + head) * d, position = t % a.length;
  const size_t oldest = t - (a.window != 0 ? std::min(position, a.window - 1) : position);
  const auto key_at = [&](size_t key) { return (key * a.kv_heads + head / (a.heads / a.kv_heads)) * d; };
  const auto product = [d](const double* x, const double* y) { return std::inner_product(x, x + d, y, 0.0); };
  std::vector<double> weight, slope;
  for (size_t key = oldest; key <= t; ++key) {
    const double score = shape.scale * product(&q[query], &k[key_at(key)]);
    const double tanh = a.softcap != 0 ? std::tanh(score / a.softcap) : 0;
    weight.push_back(a.softcap != 0 ? a.softcap * tanh : score);
    slope.push_back(1 - tanh * tanh);
  }
  const double maximum = *std::max_element(weight.begin(), weight.end());
  for (double& w : weight) w = std::exp(w - maximum);
  const double sum = std::accumulate(weight.begin(), weight.end(), 0.0);
  double mean = 0;
  for (size_t key = oldest; key <= t; ++key) {
    mean += (weight[key - oldest] /= sum) * product(&dout[query], &v[key_at(key)]);
  }
  for (size_t key = oldest; key <= t; ++key) {
    const double w = weight[key - oldest];
    const double to_score = w * (product(&dout[query], &v[key_at(key)]) - mean) * slope[key - oldest] * shape.scale;
    for (size_t i = 0; i < d; ++i) {
      sums.dq[query + i] += to_score * k[key_at(key) + i];
      sums.dk[key_at(key) + i] += to_score * q[query + i];
      sums.dv[key_at(key) + i] += w * dout[query + i];
    }
  }
}

inline Case attention_gradient_case(const AttentionSize& a) {
  const size_t tokens = a.sequences * a.length, width = a.heads * a.head_dim, kv_width = a.kv_heads * a.head_dim;
  Case c{a.name(),
         {beside(random_operand(tokens, width, 1, 3.0f), 1, 2), beside(random_operand(tokens, kv_width, 2, 3.0f), 0, 2),
          beside(random_operand(tokens, kv_width, 3), 2, 3), beside(random_operand(tokens, width, 4), 0, 1),
          beside(unset(tokens, width), 3, 0), beside(unset(tokens, kv_width), 0, 1),
          beside(unset(tokens, kv_width), 1, 1)},
         {}};
  c.op = [=](Backend&, std::span<const Tensor> t) {
    return op::AttentionGradient{t[0], t[1], t[2], t[3], a.sequences, a.shape(), t[4], t[5], t[6]};
  };
  c.reference = [=](const Operands& before) {
    const std::vector<std::vector<double>> in = {before[0].values(), before[1].values(), before[2].values(),
                                                 before[3].values()};
    AttentionGradients wanted{std::vector<double>(tokens * width), std::vector<double>(tokens * kv_width),
                              std::vector<double>(tokens * kv_width)};
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t h = 0; h < a.heads; ++h) attend_back(a, in, t, h, wanted);
    }
    return all_of({close_to(4, wanted.dq, kAttentionBound), close_to(5, wanted.dk, kAttentionBound),
                   close_to(6, wanted.dv, kAttentionBound)});
  };
  return c;
}

// Scores whose exponentials are no floats: one key takes everything, and nothing is left for q and k.
inline Case steep_attention_gradient_case() {
  constexpr size_t kLength = 300;
  Case c = attention_gradient_case({1, kLength, 1, 1, 2, 0, 0});
  c.name = "scores beyond the range of exp";
  std::vector<float> k(2 * kLength);
  for (size_t i = 0; i < k.size(); ++i) k[i] = i / 2 == 280 ? 1.0f : -static_cast<float>(i / 2);
  c.operands[0] = filled(kLength, 2, 500.0f);
  c.operands[1] = operand(k, kLength, 2);
  return c;
}

inline std::vector<Case> attention_gradient_cases() {
  std::vector<Case> cases = {
      attention_gradient_case({0, 1, 4, 2, 8, 0, 0}),         attention_gradient_case({2, 0, 4, 2, 8, 0, 0}),
      attention_gradient_case({1, 40, 14, 2, 16, 0, 0}),      attention_gradient_case({1, 141, 4, 1, 10, 3, 4.0f}),
      attention_gradient_case({2, 20, 3, 1, 5, SIZE_MAX, 0}), steep_attention_gradient_case()};
  for (const AttentionSize& a : kAttentionSizes) cases.push_back(attention_gradient_case(a));
  return cases;
}

// Of a token drawn from softmax(logits): the token, and how far the uniform number is from giving another one.
struct Draw {
  size_t token;
  double margin;
};
inline Draw draw(std::span<const float> logits, double uniform) {
  const double log_total = log_sum(logits);
  double sum = 0;
  Draw last{logits.size(), 0};
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp(logits[i] - log_total), before = sum;
    sum += p;
    if (p > 0) last = {i, std::min(uniform - before, sum - uniform)};
    if (sum > uniform) break;
  }
  return last;
}

// Numbers that leave no doubt about the token.
inline std::vector<float> clear_uniforms(const std::vector<float>& logits, size_t rows, size_t n) {
  Rng rng(n);
  std::vector<float> uniforms(rows);
  for (size_t r = 0; r < rows; ++r) {
    const std::span<const float> row(logits.data() + r * n, n);
    do uniforms[r] = rng.next_float();
    while (draw(row, uniforms[r]).margin < 3e-6);
  }
  return uniforms;
}

inline Case sampled_gradient_case(const std::vector<float>& logits, const std::vector<float>& uniforms, float softcap) {
  const size_t rows = uniforms.size(), n = rows == 0 ? 4 : logits.size() / rows;
  Case c{fmt::format("{} x {}, cap {}", rows, n, softcap),
         {beside(operand(logits, rows, n), 1, 2), operand(uniforms, rows, 1)},
         {}};
  c.op = [=](Backend&, std::span<const Tensor> t) { return op::SampledGradient{t[0], t[1], softcap}; };
  c.reference = [=](const Operands& before) {
    std::vector<double> wanted, distance;
    for (size_t r = 0; r < rows; ++r) {
      const auto row = before[0].as<float>().subspan(r * n, n);
      const size_t token = draw(row, before[1].as<float>()[r]).token;
      const double log_total = log_sum(row);
      for (size_t i = 0; i < n; ++i) {
        const double p = std::exp(row[i] - log_total), t = softcap != 0 ? row[i] / softcap : 0;
        wanted.push_back((p - (i == token ? 1 : 0)) * (1 - t * t));
        distance.push_back(1e-30 + 3e-6 * p + (i == token ? 3e-7 : 0));
      }
    }
    return within(0, wanted, distance);
  };
  return c;
}

// The first token with a chance at 0; the last at the largest number below 1, and where rounding led beyond.
inline Case impossible_tokens_case(float uniform) {
  const std::vector<float> logits = {-INFINITY, -INFINITY, 1.0f, -INFINITY, 0.5f, 1.5f, -INFINITY};
  Case c = sampled_gradient_case(logits, {uniform}, 0);
  c.name = fmt::format("tokens without a chance, uniform {}", uniform);
  return c;
}

inline std::vector<Case> sampled_gradient_cases() {
  std::vector<Case> cases = {sampled_gradient_case({}, {}, 0), impossible_tokens_case(0.0f),
                             impossible_tokens_case(std::nextafter(1.0f, 0.0f)), impossible_tokens_case(1.0f)};
  for (const size_t n : {1, 2, 7, 17, 511, 512, 513, 5000}) {
    for (const float cap : {0.0f, 15.0f}) {
      const std::vector<float> logits = random_floats(9 * n, n, cap != 0 ? 14.9f : 3.0f);
      cases.push_back(sampled_gradient_case(logits, clear_uniforms(logits, 9, n), cap));
    }
  }
  for (const size_t n : {2, 17, 1000}) {
    for (const std::vector<float>& row : spoiled_rows(n)) {
      cases.push_back(sampled_gradient_case(row, {0.5f}, 0));
      cases.back().name = fmt::format("not finite, {}", n);
      cases.back().reference = [n](const Operands&) {
        return within(0, std::vector<double>(n, std::nan("")), std::vector<double>(n));
      };
    }
  }
  return cases;
}

}  // namespace bw::backend::conformance
