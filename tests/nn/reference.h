// A decoder in plain loops and double precision, to hold nn::Decoder against.
#pragma once

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "nn/decoder.h"

namespace bw::nn::reference {

using Vector = std::vector<double>;
using Rows = std::vector<Vector>;  // one vector a token

struct Linear {
  Matrix<float> weight;  // (out, in)
  std::vector<float> bias;
};

struct Layer {
  std::array<Linear, model::kLinearsPerLayer> linears;
  model::LayerNorms norms;
};

struct Model {
  model::ModelConfig config;
  std::vector<Layer> layers;
  std::vector<float> final_norm;
  Matrix<float> head;
};

inline std::vector<float> random(Rng& rng, size_t n, float centre, float spread) {
  std::vector<float> v(n);
  for (float& x : v) x = centre + spread * (2 * rng.next_float() - 1);
  return v;
}

inline Matrix<float> random_matrix(Rng& rng, size_t rows, size_t cols) {
  Matrix<float> m(rows, cols);
  const float spread = 2.0f / std::sqrt(static_cast<float>(cols));
  for (float& x : m.span()) x = spread * (2 * rng.next_float() - 1);
  return m;
}

// A model of the config's shape with random weights.
inline Model random_model(const model::ModelConfig& c, uint64_t seed) {
  Rng rng(seed);
  Model m;
  m.config = c;
  const size_t q = c.n_heads * c.head_dim, kv = c.n_kv_heads * c.head_dim;
  const size_t outs[] = {q, kv, kv, c.hidden, c.intermediate, c.intermediate, c.hidden};
  const size_t ins[] = {c.hidden, c.hidden, c.hidden, q, c.hidden, c.hidden, c.intermediate};
  const bool biases[] = {c.qkv_bias, c.qkv_bias, c.qkv_bias, c.o_bias, c.mlp_bias, c.mlp_bias, c.mlp_bias};
  for (size_t l = 0; l < c.n_layers; ++l) {
    Layer layer;
    for (size_t i = 0; i < model::kLinearsPerLayer; ++i) {
      layer.linears[i].weight = random_matrix(rng, outs[i], ins[i]);
      if (biases[i]) layer.linears[i].bias = random(rng, outs[i], 0.0f, 0.5f);
    }
    layer.norms.attention_in = random(rng, c.hidden, 1.0f, 0.5f);
    layer.norms.mlp_in = random(rng, c.hidden, 1.0f, 0.5f);
    if (c.post_norms) {
      layer.norms.attention_out = random(rng, c.hidden, 1.0f, 0.5f);
      layer.norms.mlp_out = random(rng, c.hidden, 1.0f, 0.5f);
    }
    if (c.qk_norm) {
      layer.norms.q = random(rng, c.head_dim, 1.0f, 0.5f);
      layer.norms.k = random(rng, c.head_dim, 1.0f, 0.5f);
    }
    m.layers.push_back(std::move(layer));
  }
  m.final_norm = random(rng, c.hidden, 1.0f, 0.5f);
  m.head = random_matrix(rng, c.vocab_size, c.hidden);
  return m;
}

inline Vector run_linear(const Linear& linear, const Vector& x) {
  Vector y(linear.weight.rows());
  for (size_t o = 0; o < y.size(); ++o) {
    y[o] = linear.bias.empty() ? 0.0 : linear.bias[o];
    for (size_t i = 0; i < x.size(); ++i) y[o] += linear.weight(o, i) * x[i];
  }
  return y;
}

// Norm of every run of weight.size() elements; no weight: x.
inline Vector norm(const Vector& x, const std::vector<float>& weight, double eps) {
  Vector y = x;
  for (size_t first = 0; first < x.size() && !weight.empty(); first += weight.size()) {
    double mean = 0;
    for (size_t i = 0; i < weight.size(); ++i) mean += x[first + i] * x[first + i] / static_cast<double>(weight.size());
    for (size_t i = 0; i < weight.size(); ++i) y[first + i] = x[first + i] / std::sqrt(mean + eps) * weight[i];
  }
  return y;
}

inline double frequency(const model::RopeConfig& rope, const model::ModelConfig& c, size_t pair, size_t length) {
  const double d = static_cast<double>(c.head_dim), max_position = static_cast<double>(c.max_position);
  double base = rope.theta;
  if (rope.scaling == model::RopeScaling::kDynamic && length > c.max_position) {
    base *= std::pow(rope.factor * static_cast<double>(length) / max_position - (rope.factor - 1), d / (d - 2));
  }
  const double f = std::pow(base, -2.0 * static_cast<double>(pair) / d);
  if (rope.scaling == model::RopeScaling::kLinear) return f / rope.factor;
  if (rope.scaling != model::RopeScaling::kLlama3) return f;
  const double original = static_cast<double>(rope.original_max_position), wavelength = 2 * M_PI / f;
  if (wavelength < original / rope.high_freq_factor) return f;
  if (wavelength > original / rope.low_freq_factor) return f / rope.factor;
  const double smooth = (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * f / rope.factor + smooth * f;
}

inline void rotate(Vector& x, const model::RopeConfig& rope, const model::ModelConfig& c, size_t position,
                   size_t length) {
  const size_t half = c.head_dim / 2;
  for (size_t head = 0; head < x.size(); head += c.head_dim) {
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequency(rope, c, i, length);
      const double a = x[head + i], b = x[head + half + i];
      x[head + i] = a * std::cos(angle) - b * std::sin(angle);
      x[head + half + i] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

inline double activate(model::Activation kind, double x) {
  if (kind == model::Activation::kSilu) return x / (1 + std::exp(-x));
  if (kind == model::Activation::kGelu) return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

inline double cap(double x, double limit) { return limit == 0 ? x : limit * std::tanh(x / limit); }

inline Rows attention(const model::ModelConfig& c, bool sliding, const Rows& q, const Rows& k, const Rows& v) {
  Rows out(q.size(), Vector(q[0].size()));
  for (size_t t = 0; t < q.size(); ++t) {
    const size_t oldest = sliding && t >= c.sliding_window ? t - c.sliding_window + 1 : 0;
    for (size_t head = 0; head < c.n_heads; ++head) {
      const size_t kv = head / (c.n_heads / c.n_kv_heads) * c.head_dim, at = head * c.head_dim;
      Vector weight;
      double sum = 0;
      for (size_t s = oldest; s <= t; ++s) {
        double score = 0;
        for (size_t i = 0; i < c.head_dim; ++i) score += q[t][at + i] * k[s][kv + i];
        weight.push_back(std::exp(cap(score * c.attention_scale, c.attention_softcap)));
        sum += weight.back();
      }
      for (size_t s = oldest; s <= t; ++s) {
        for (size_t i = 0; i < c.head_dim; ++i) out[t][at + i] += weight[s - oldest] / sum * v[s][kv + i];
      }
    }
  }
  return out;
}

// h, the hidden states of one row, becomes the layer's output.
inline void forward_layer(const Model& m, size_t index, Rows& h) {
  const model::ModelConfig& c = m.config;
  const Layer& layer = m.layers[index];
  const auto linear = [&](model::LinearKind kind) -> const Linear& { return layer.linears[static_cast<size_t>(kind)]; };
  const bool sliding = c.sliding_window != 0 && c.sliding[index];
  const model::RopeConfig& rope = sliding ? c.rope_sliding : c.rope;
  Rows q, k, v;
  for (size_t t = 0; t < h.size(); ++t) {
    const Vector x = norm(h[t], layer.norms.attention_in, c.norm_eps);
    q.push_back(norm(run_linear(linear(model::LinearKind::kQ), x), layer.norms.q, c.norm_eps));
    k.push_back(norm(run_linear(linear(model::LinearKind::kK), x), layer.norms.k, c.norm_eps));
    v.push_back(run_linear(linear(model::LinearKind::kV), x));
    rotate(q[t], rope, c, t, h.size());
    rotate(k[t], rope, c, t, h.size());
  }
  const Rows attended = attention(c, sliding, q, k, v);
  for (size_t t = 0; t < h.size(); ++t) {
    const Vector o =
        norm(run_linear(linear(model::LinearKind::kO), attended[t]), layer.norms.attention_out, c.norm_eps);
    for (size_t i = 0; i < c.hidden; ++i) h[t][i] += o[i];
    const Vector x = norm(h[t], layer.norms.mlp_in, c.norm_eps);
    Vector gate = run_linear(linear(model::LinearKind::kGate), x);
    const Vector up = run_linear(linear(model::LinearKind::kUp), x);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = activate(c.activation, gate[i]) * up[i];
    const Vector down = norm(run_linear(linear(model::LinearKind::kDown), gate), layer.norms.mlp_out, c.norm_eps);
    for (size_t i = 0; i < c.hidden; ++i) h[t][i] += down[i];
  }
}

inline Vector logits(const Model& m, const Vector& h) {
  const Vector x = norm(h, m.final_norm, m.config.norm_eps);
  Vector y(m.head.rows());
  for (size_t o = 0; o < y.size(); ++o) {
    for (size_t i = 0; i < x.size(); ++i) y[o] += m.head(o, i) * x[i];
    y[o] = cap(y[o], m.config.final_softcap);
  }
  return y;
}

}  // namespace bw::nn::reference
