#include "backend/testing.h"

#include <algorithm>

#include "bitwright/error.h"

namespace bw::backend {
namespace {

struct Case {
  size_t sequences, length, heads, kv_heads, head_dim, window;
  float softcap;
};
const Case kCases[] = {{1, 1, 1, 1, 2, 0, 0},       {2, 5, 4, 2, 8, 0, 0},     {1, 17, 3, 1, 6, 0, 2.0f},
                       {3, 40, 2, 2, 34, 7, 0},     {1, 300, 4, 1, 16, 0, 0},  {1, 530, 2, 1, 64, 100, 0},
                       {2, 130, 9, 3, 20, 1, 3.0f}, {1, 64, 8, 8, 128, 64, 0}, {1, 700, 1, 1, 32, 0, 5.0f}};

AttentionShape shape_of(const Case& c) {
  return {c.heads, c.kv_heads, c.head_dim, 1.5f / std::sqrt(static_cast<float>(c.head_dim)), c.softcap, c.window};
}

// Attention of head `head` at `position` over rows of one sequence that begin at row `first` of k and v.
void reference(const Case& c, std::span<const float> q_head, std::span<const float> k, std::span<const float> v,
               size_t first, size_t position, size_t head, double* out) {
  const AttentionShape shape = shape_of(c);
  const size_t width = c.kv_heads * c.head_dim, offset = head / (c.heads / c.kv_heads) * c.head_dim;
  const size_t oldest = c.window != 0 && position >= c.window ? position - c.window + 1 : 0;
  std::vector<double> score;
  double maximum = -1e300, sum = 0;
  for (size_t key = oldest; key <= position; ++key) {
    double s = 0;
    for (size_t i = 0; i < c.head_dim; ++i) s += double{q_head[i]} * k[(first + key) * width + offset + i];
    s *= shape.scale;
    if (c.softcap != 0) s = c.softcap * std::tanh(s / c.softcap);
    score.push_back(s);
    maximum = std::max(maximum, s);
  }
  for (double& s : score) sum += s = std::exp(s - maximum);
  for (size_t key = oldest; key <= position; ++key) {
    for (size_t i = 0; i < c.head_dim; ++i) out[i] += score[key - oldest] / sum * v[(first + key) * width + offset + i];
  }
}

TEST(Attention, MatchesTheReference) {
  const auto device = make_cpu_backend(2);
  for_each_simd_target([&] {
    for (const Case& c : kCases) {
      const size_t tokens = c.sequences * c.length, width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
      const auto q = random_floats(tokens * width, 1, 3.0f), k = random_floats(tokens * kv_width, 2, 3.0f);
      const auto v = random_floats(tokens * kv_width, 3);
      const Tensor out = tensor_of(*device, std::vector<float>(tokens * width), tokens, width, 1);
      device->attention(tensor_of(*device, q, tokens, width, 3), tensor_of(*device, k, tokens, kv_width, 2),
                        tensor_of(*device, v, tokens, kv_width, 5), c.sequences, shape_of(c), out);
      std::vector<double> expected(tokens * width);
      for (size_t t = 0; t < tokens; ++t) {
        for (size_t h = 0; h < c.heads; ++h) {
          const size_t at = t * width + h * c.head_dim;
          reference(c, std::span(q).subspan(at, c.head_dim), k, v, t / c.length * c.length, t % c.length, h,
                    &expected[at]);
        }
      }
      EXPECT_LT(nmse(values_of(*device, out), expected), 1e-11) << c.length << " " << c.head_dim << " " << c.window;
    }
  });
}

TEST(Attention, StandsScoresThatExpWouldOverflow) {
  const auto device = make_cpu_backend(1);
  const size_t length = 300;  // more than one block of keys
  std::vector<float> k(length);
  for (size_t i = 0; i < length; ++i) k[i] = i == 280 ? 1.0f : -static_cast<float>(i);
  const auto v = random_floats(length, 1);
  std::vector<float> twice_k(2 * length), twice_v(2 * length);
  for (size_t i = 0; i < length; ++i)
    twice_k[2 * i] = twice_k[2 * i + 1] = k[i], twice_v[2 * i] = twice_v[2 * i + 1] = v[i];
  const Tensor out = device->allocate(length, 2);
  device->attention(tensor_of(*device, std::vector<float>(2 * length, 500.0f), length, 2),
                    tensor_of(*device, twice_k, length, 2), tensor_of(*device, twice_v, length, 2), 1,
                    {1, 1, 2, 1.0f, 0.0f, 0}, out);
  const auto got = values_of(*device, out);
  EXPECT_EQ(got[2 * 100], v[0]);
  EXPECT_EQ(got[2 * 299], v[280]);
}

TEST(AttentionCached, MatchesTheReference) {
  const auto device = make_cpu_backend(2);
  for_each_simd_target([&] {
    for (const Case& c : kCases) {
      const size_t capacity = c.length + 3, width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
      const size_t rows = c.sequences * capacity;
      auto k = random_floats(rows * kv_width, 2, 3.0f), v = random_floats(rows * kv_width, 3);
      for (size_t r = 0; r < rows; ++r) {  // what is not filled must not be read
        if (r % capacity >= c.length)
          std::fill_n(v.begin() + static_cast<ptrdiff_t>(r * kv_width), kv_width, std::nanf(""));
      }
      const auto q = random_floats(c.sequences * width, 1, 3.0f);
      const Tensor out = device->allocate(c.sequences, width);
      device->attention_cached(tensor_of(*device, q, c.sequences, width, 1), tensor_of(*device, k, rows, kv_width),
                               tensor_of(*device, v, rows, kv_width), capacity, c.length, shape_of(c), out);
      std::vector<double> expected(c.sequences * width);
      for (size_t s = 0; s < c.sequences; ++s) {
        for (size_t h = 0; h < c.heads; ++h) {
          const size_t at = s * width + h * c.head_dim;
          reference(c, std::span(q).subspan(at, c.head_dim), k, v, s * capacity, c.length - 1, h, &expected[at]);
        }
      }
      EXPECT_LT(nmse(values_of(*device, out), expected), 1e-11) << c.length << " " << c.head_dim << " " << c.window;
    }
  });
}

TEST(Attention, IsTheSameBytesAtAnyThreadCount) {
  const size_t tokens = 2 * 333, width = 6 * 32, kv_width = 2 * 32;
  const auto q = random_floats(tokens * width, 1, 3.0f), k = random_floats(tokens * kv_width, 2, 3.0f);
  expect_same_at_any_thread_count([&](Backend& device) {
    const Tensor out = device.allocate(tokens, width), tk = tensor_of(device, k, tokens, kv_width);
    device.attention(tensor_of(device, q, tokens, width), tk, tk, 2, {6, 2, 32, 0.2f, 0.0f, 0}, out);
    return values_of(device, out);
  });
}

TEST(Attention, EmptyAndWrongShapes) {
  const auto device = make_cpu_backend(1);
  const AttentionShape shape{4, 2, 8, 1.0f, 0.0f, 0};
  const Tensor none = device->allocate(0, 32), no_kv = device->allocate(0, 16);
  device->attention(none, no_kv, no_kv, 0, shape, none);
  const Tensor q = device->allocate(6, 32), kv = device->allocate(6, 16);
  EXPECT_THROW(device->attention(q, kv, kv, 4, shape, q), Error);
  EXPECT_THROW(device->attention(q, q, kv, 2, shape, q), Error);
  EXPECT_THROW(device->attention(q, kv, kv, 2, {4, 3, 8, 1.0f, 0.0f, 0}, q), Error);
  EXPECT_THROW(device->attention_cached(q.rows_slice(0, 2), kv, kv, 3, 4, shape, q.rows_slice(0, 2)), Error);
}

}  // namespace
}  // namespace bw::backend
