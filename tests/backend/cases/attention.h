// Cases of Attention and AttentionCached.
#pragma once

#include "backend/cases/case.h"

namespace bw::backend::conformance {

struct AttentionSize {
  size_t sequences, length, heads, kv_heads, head_dim, window;
  float softcap;

  AttentionShape shape() const {
    return {heads, kv_heads, head_dim, 1.5f / std::sqrt(static_cast<float>(head_dim)), softcap, window};
  }
  std::string name() const {
    return fmt::format("{} x {}, heads {} / {} of {}, window {}, cap {}", sequences, length, heads, kv_heads, head_dim,
                       window, softcap);
  }
};
inline constexpr AttentionSize kAttentionSizes[] = {
    {1, 1, 1, 1, 2, 0, 0},       {2, 5, 4, 2, 8, 0, 0},      {1, 17, 3, 1, 6, 0, 2.0f},   {3, 40, 2, 2, 34, 7, 0},
    {1, 300, 4, 1, 16, 0, 0},    {1, 530, 2, 1, 64, 100, 0}, {2, 130, 9, 3, 20, 1, 3.0f}, {1, 64, 8, 8, 128, 64, 0},
    {1, 700, 1, 1, 32, 0, 5.0f}, {1, 65, 2, 1, 256, 33, 0}};
inline constexpr double kAttentionBound = 1e-11;

// Attention of head `head` at `position` over keys and values of one sequence that begin at row `first`.
inline void attend(const AttentionSize& a, const float* q_head, std::span<const float> k, std::span<const float> v,
                   size_t first, size_t position, size_t head, double* out) {
  const AttentionShape shape = a.shape();
  const size_t width = a.kv_heads * a.head_dim, offset = head / (a.heads / a.kv_heads) * a.head_dim;
  const size_t oldest = a.window != 0 && position >= a.window ? position - a.window + 1 : 0;
  std::vector<double> score;
  double maximum = -std::numeric_limits<double>::infinity(), sum = 0;
  for (size_t key = oldest; key <= position; ++key) {
    double s = 0;
    for (size_t i = 0; i < a.head_dim; ++i) s += double{q_head[i]} * k[(first + key) * width + offset + i];
    s *= shape.scale;
    if (a.softcap != 0) s = a.softcap * std::tanh(s / a.softcap);
    score.push_back(s);
    maximum = std::max(maximum, s);
  }
  for (double& s : score) sum += s = std::exp(s - maximum);
  for (size_t key = oldest; key <= position; ++key) {
    for (size_t i = 0; i < a.head_dim; ++i) out[i] += score[key - oldest] / sum * v[(first + key) * width + offset + i];
  }
}

inline Case attention_case(const AttentionSize& a) {
  const size_t tokens = a.sequences * a.length, width = a.heads * a.head_dim, kv_width = a.kv_heads * a.head_dim;
  Case c{a.name(),
         {beside(random_operand(tokens, width, 1, 3.0f), 1, 2), beside(random_operand(tokens, kv_width, 2, 3.0f), 0, 2),
          beside(random_operand(tokens, kv_width, 3), 2, 3), beside(unset(tokens, width), 0, 1)},
         {}};
  c.op = [=](Backend&, std::span<const Tensor> t) {
    return op::Attention{t[0], t[1], t[2], a.sequences, a.shape(), t[3]};
  };
  c.reference = [=](const Operands& before) {
    const auto q = before[0].as<float>(), k = before[1].as<float>(), v = before[2].as<float>();
    std::vector<double> wanted(tokens * width);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t h = 0; h < a.heads; ++h) {
        const size_t at = t * width + h * a.head_dim;
        attend(a, &q[at], k, v, t / a.length * a.length, t % a.length, h, &wanted[at]);
      }
    }
    return close_to(3, wanted, kAttentionBound);
  };
  return c;
}

// Scores whose exponentials are no floats, over more than one block of keys: one key takes everything.
inline Case steep_attention_case() {
  const size_t length = 300;
  Case c = attention_case({1, length, 1, 1, 2, 0, 0});
  c.name = "scores beyond the range of exp";
  std::vector<float> k(2 * length);
  for (size_t i = 0; i < k.size(); ++i) k[i] = i / 2 == 280 ? 1.0f : -static_cast<float>(i / 2);
  c.operands[0] = filled(length, 2, 500.0f);
  c.operands[1] = operand(k, length, 2);
  c.reference = [=](const Operands& before) {
    const std::vector<double> v = before[2].values();
    std::vector<double> wanted(2 * length);
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = v[i / 2 < 280 ? i % 2 : 2 * 280 + i % 2];
    return close_to(3, wanted, 0);
  };
  return c;
}

inline std::vector<Case> attention_cases() {
  std::vector<Case> cases = {attention_case({0, 0, 4, 2, 8, 0, 0}), steep_attention_case()};
  for (const AttentionSize& a : kAttentionSizes) cases.push_back(attention_case(a));
  return cases;
}

// Keys and values of a cache whose rows past `length` of every `capacity` are unset.
inline Operand random_cache(const AttentionSize& a, size_t capacity, uint64_t seed, float spread) {
  const size_t rows = a.sequences * capacity, width = a.kv_heads * a.head_dim;
  std::vector<float> cache = random_floats(rows * width, seed, spread);
  for (size_t r = 0; r < rows; ++r) {
    if (r % capacity >= a.length) {
      std::fill_n(cache.begin() + static_cast<ptrdiff_t>(r * width), width, std::nanf(""));
    }
  }
  return operand(cache, rows, width);
}

// `spare`: positions of the cache that are not filled yet.
inline Case attention_cached_case(const AttentionSize& a, size_t spare) {
  const size_t capacity = a.length + spare, width = a.heads * a.head_dim;
  Case c{a.name(),
         {beside(random_operand(a.sequences, width, 1, 3.0f), 1, 0), beside(random_cache(a, capacity, 2, 3.0f), 1, 1),
          beside(random_cache(a, capacity, 3, 1.0f), 0, 2), beside(unset(a.sequences, width), 1, 1)},
         {}};
  c.op = [=](Backend&, std::span<const Tensor> t) {
    return op::AttentionCached{t[0], t[1], t[2], capacity, a.length, a.shape(), t[3]};
  };
  c.reference = [=](const Operands& before) {
    const auto q = before[0].as<float>(), k = before[1].as<float>(), v = before[2].as<float>();
    std::vector<double> wanted(a.sequences * width);
    for (size_t s = 0; s < a.sequences; ++s) {
      for (size_t h = 0; h < a.heads; ++h) {
        const size_t at = s * width + h * a.head_dim;
        attend(a, &q[at], k, v, s * capacity, a.length - 1, h, &wanted[at]);
      }
    }
    return close_to(3, wanted, kAttentionBound);
  };
  return c;
}

inline std::vector<Case> attention_cached_cases() {
  std::vector<Case> cases = {attention_cached_case({0, 4, 4, 2, 8, 0, 0}, 1),
                             attention_cached_case({2, 33, 4, 2, 16, 0, 0}, 0)};
  for (const AttentionSize& a : kAttentionSizes) cases.push_back(attention_cached_case(a, 3));
  return cases;
}

}  // namespace bw::backend::conformance
