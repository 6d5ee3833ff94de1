// Cases of operations: an operation on given operands, and what the operands must hold afterwards. The conformance
// tests run them on every device; the benchmarks time the same operations at the shapes of real models.
//
// References are plain loops in double, written from the documentation in backend/ops.h, on the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backend/backend.h"
#include "base/half.h"
#include "base/rng.h"

namespace bw::backend::conformance {

// A matrix on the host, and what lies beside each of its rows in device memory: `before` and `after` elements that no
// operation may read or write.
struct Operand {
  DType dtype = DType::kF32;
  size_t rows = 0, cols = 0;
  std::vector<std::byte> bytes{};  // dense, row-major
  size_t before = 0, after = 0;

  size_t size() const { return rows * cols; }
  template <typename T>
  std::span<const T> as() const {
    BW_CHECK(dtype == DTypeOf<T>::value && bytes.size() == size() * sizeof(T));
    return {reinterpret_cast<const T*>(bytes.data()), size()};
  }
  std::vector<double> values() const;
};
using Operands = std::vector<Operand>;

// What is wrong with the operands after the operation; empty if nothing is.
using Expectation = std::function<std::string(const Operands& after)>;

struct Case {
  std::string name;
  Operands operands;
  // The operation on the operands in device memory.
  std::function<Op(Backend&, std::span<const Tensor>)> op;
  // Works out what the operation must give.
  std::function<Expectation(const Operands& before)> reference{};
  bool large = false;  // left out where a processor plays another device: it would take too long
};

inline Case large(Case c) {
  c.large = true;
  return c;
}

// Memory that nobody has written to, and what lies beside rows: NaN, -1, 255.
inline constexpr std::byte kUnset{0xff};

// Operands ----------------------------------------------------------------------------------------------------------

inline double value_at(const std::byte* p, DType dtype) {
  const auto load = [p]<typename T>(T x) {
    std::memcpy(&x, p, sizeof(T));
    return x;
  };
  switch (dtype) {
    case DType::kF32:
      return load(float{});
    case DType::kF64:
      return load(double{});
    case DType::kBF16:
      return to_float(load(BFloat16{}));
    case DType::kF16:
      return to_float(load(Half{}));
    case DType::kI32:
      return load(int32_t{});
    case DType::kU8:
      return load(uint8_t{});
  }
  return 0;
}

inline std::vector<double> Operand::values() const {
  std::vector<double> v(size());
  for (size_t i = 0; i < v.size(); ++i) v[i] = value_at(bytes.data() + i * dtype_size(dtype), dtype);
  return v;
}

template <typename T>
Operand operand(const std::vector<T>& data, size_t rows, size_t cols) {
  BW_CHECK(data.size() == rows * cols);
  Operand o{DTypeOf<T>::value, rows, cols};
  o.bytes.resize(data.size() * sizeof(T));
  if (!data.empty()) std::memcpy(o.bytes.data(), data.data(), o.bytes.size());
  return o;
}

inline std::vector<float> random_floats(size_t n, uint64_t seed, float spread = 1.0f) {
  Rng rng(seed);
  std::vector<float> v(n);
  for (float& x : v) x = spread * (2.0f * rng.next_float() - 1.0f);
  return v;
}

inline Operand random_operand(size_t rows, size_t cols, uint64_t seed, float spread = 1.0f) {
  return operand(random_floats(rows * cols, seed, spread), rows, cols);
}

inline Operand filled(size_t rows, size_t cols, float value) {
  return operand(std::vector<float>(rows * cols, value), rows, cols);
}

// For results.
inline Operand unset(size_t rows, size_t cols, DType dtype = DType::kF32) {
  return {dtype, rows, cols, std::vector<std::byte>(rows * cols * dtype_size(dtype), kUnset)};
}

// An accumulator that holds something already.
inline Operand sum_of(double value) { return operand(std::vector<double>{value}, 1, 1); }

inline Operand beside(Operand o, size_t before, size_t after) {
  o.before = before;
  o.after = after;
  return o;
}

// The numbers 0 ... n-1 in an order that depends on the seed.
inline std::vector<int32_t> random_order(size_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<int32_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = static_cast<int32_t>(i);
  for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[rng.below(static_cast<uint32_t>(i))]);
  return order;
}

inline std::vector<uint8_t> random_codes(size_t n, uint32_t below, uint64_t seed) {
  Rng rng(seed);
  std::vector<uint8_t> codes(n);
  for (uint8_t& c : codes) c = static_cast<uint8_t>(rng.below(below));
  return codes;
}

inline double normal(Rng& rng) {
  const double u = 1.0 - rng.next_double(), v = rng.next_double();
  return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
}

// Around and between the vector lengths of all instruction sets, and long rows.
inline constexpr size_t kWidths[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 130, 1000};

// Expectations ------------------------------------------------------------------------------------------------------

// Operand `index` has these values: Σ (x - y)² / Σ y², the error's share of the energy, is at most `bound`. NaN
// anywhere fails. Where `defined` is given, elements for which it is false may hold anything.
inline Expectation close_to(size_t index, std::vector<double> wanted, double bound, std::vector<bool> defined = {}) {
  return [=](const Operands& after) -> std::string {
    const std::vector<double> got = after[index].values();
    if (got.size() != wanted.size()) return fmt::format("{} values, wanted {}", got.size(), wanted.size());
    double error = 0, energy = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      if (!defined.empty() && !defined[i]) continue;
      error += (got[i] - wanted[i]) * (got[i] - wanted[i]);
      energy += wanted[i] * wanted[i];
    }
    const double share = energy > 0 ? error / energy : error;
    if (share <= bound) return {};
    return fmt::format("operand {}: normalised error {:.3g}, allowed {:.3g}", index, share, bound);
  };
}

// Each value within its own distance; a wanted infinity or NaN stands for any value that is not finite.
inline Expectation within(size_t index, std::vector<double> wanted, std::vector<double> distance) {
  return [=](const Operands& after) -> std::string {
    const std::vector<double> got = after[index].values();
    for (size_t i = 0; i < wanted.size(); ++i) {
      const bool fits = std::isfinite(wanted[i]) ? std::abs(got[i] - wanted[i]) <= distance[i] : !std::isfinite(got[i]);
      if (!fits) {
        return fmt::format("operand {}, element {}: {:.9g}, wanted {:.9g} within {:.3g}", index, i, got[i], wanted[i],
                           distance[i]);
      }
    }
    return {};
  };
}

inline Expectation within(size_t index, double wanted, double distance) {
  return within(index, std::vector<double>{wanted}, std::vector<double>{distance});
}

// The same bits, but any NaN for a NaN.
inline Expectation same_as(size_t index, Operand wanted) {
  return [=](const Operands& after) -> std::string {
    const Operand& got = after[index];
    const size_t size = dtype_size(wanted.dtype);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const std::byte *g = got.bytes.data() + i * size, *w = wanted.bytes.data() + i * size;
      if (std::memcmp(g, w, size) == 0) continue;
      const double x = value_at(g, got.dtype), y = value_at(w, wanted.dtype);
      if (std::isnan(x) && std::isnan(y)) continue;
      return fmt::format("operand {}, element {}: {:.9g}, wanted exactly {:.9g}", index, i, x, y);
    }
    return {};
  };
}

inline Expectation all_of(std::vector<Expectation> expectations) {
  return [=](const Operands& after) -> std::string {
    for (const Expectation& e : expectations) {
      if (std::string fault = e(after); !fault.empty()) return fault;
    }
    return {};
  };
}

inline void append(std::vector<Case>& cases, std::vector<Case> more) {
  cases.insert(cases.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace bw::backend::conformance
