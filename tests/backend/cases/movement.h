// Cases of Fill, Copy, PackWeight and TransposeInOrder.
#pragma once

#include "backend/cases/case.h"

namespace bw::backend::conformance {

inline Operand converted(std::span<const float> x, size_t rows, size_t cols, DType dtype) {
  if (dtype == DType::kF32) return operand(std::vector<float>(x.begin(), x.end()), rows, cols);
  const auto each = [&]<typename T>(T (*f)(float)) {
    std::vector<T> y(x.size());
    std::transform(x.begin(), x.end(), y.begin(), f);
    return operand(y, rows, cols);
  };
  return dtype == DType::kBF16 ? each(to_bfloat16) : each(to_half);
}

inline Case fill_case(Operand x, float value) {
  Case c{fmt::format("{} x {}, type {}, {}", x.rows, x.cols, static_cast<int>(x.dtype), value), {x}, {}};
  c.op = [value](Backend&, std::span<const Tensor> t) { return op::Fill{t[0], value}; };
  c.reference = [value](const Operands& before) {
    const bool integer = before[0].dtype == DType::kI32;
    return close_to(0, std::vector<double>(before[0].size(), integer ? std::trunc(value) : value), 0);
  };
  return c;
}

inline std::vector<Case> fill_cases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32}) {
    for (const float value : {0.0f, 2.75f, -2.75f}) {
      for (const auto& [rows, cols] : {std::pair<size_t, size_t>{0, 5}, {3, 0}, {1, 1}, {3, 33}, {2, 1000}}) {
        cases.push_back(fill_case(beside(unset(rows, cols, dtype), 1, 2), value));
      }
    }
  }
  return cases;
}

inline Case copy_case(Operand src, DType to) {
  const DType from = src.dtype;
  Case c{fmt::format("{} x {}, type {} to {}", src.rows, src.cols, static_cast<int>(from), static_cast<int>(to)),
         {src, beside(unset(src.rows, src.cols, to), 3, 2)},
         {}};
  c.op = [](Backend&, std::span<const Tensor> t) { return op::Copy{t[0], t[1]}; };
  c.reference = [to](const Operands& before) {
    const Operand& x = before[0];
    if (x.dtype == to) return same_as(1, x);
    const std::vector<double> values = x.values();  // exact: all types convert through float
    return same_as(1, converted(std::vector<float>(values.begin(), values.end()), x.rows, x.cols, to));
  };
  return c;
}

// Random floats from tiny to beyond the largest half, with NaN, infinities, ties, zeros and subnormal numbers.
inline std::vector<float> awkward_floats(size_t n) {
  static const float kSpecial[] = {std::nanf(""), 1e-41f,         INFINITY,    1.00390625f /* tie of bfloat16 */,
                                   -INFINITY,     1.00048828125f, -0.0f,       65519.0f,
                                   65520.0f,      0x1p-24f,       0x1.8p-25f,  0x1p-25f,
                                   3.4028235e38f, -0x1.8p-15f,    1.01171875f, -1e-45f};
  std::vector<float> x = random_floats(n, n, 70000.0f);
  for (size_t i = 0; i < n; ++i) {
    if (i % 3 == 1) x[i] *= 1e-9f;
    if (i % 2 == 0 && i / 2 < std::size(kSpecial)) x[i] = kSpecial[i / 2];
  }
  return x;
}

inline std::vector<Case> copy_cases() {
  std::vector<Case> cases;
  const DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (const DType from : kFloats) {
    for (const DType to : kFloats) {
      cases.push_back(copy_case(unset(0, 8, from), to));
      for (const size_t n : kWidths) {
        cases.push_back(copy_case(beside(converted(awkward_floats(2 * n), 2, n, from), 1, 2), to));
      }
    }
  }
  for (const size_t n : kWidths) {
    cases.push_back(copy_case(beside(operand(random_codes(3 * n, 256, n), 3, n), 2, 1), DType::kU8));
    cases.push_back(copy_case(beside(operand(random_order(3 * n, n), 3, n), 1, 1), DType::kI32));
    const std::vector<float> x = random_floats(3 * n, n);
    cases.push_back(copy_case(beside(operand(std::vector<double>(x.begin(), x.end()), 3, n), 1, 0), DType::kF64));
  }
  return cases;
}

inline float rounded(float x, Precision p) { return p == Precision::kBF16 ? to_float(to_bfloat16(x)) : x; }

// What a weight holds shows in the product with the unit matrix.
inline Case pack_weight_case(size_t out, size_t in, Precision p) {
  std::vector<float> unit(in * in, 0.0f);
  for (size_t i = 0; i < in; ++i) unit[i * in + i] = 1.0f;
  Case c{fmt::format("out {}, in {}, precision {}", out, in, static_cast<int>(p)),
         {beside(random_operand(out, in, out + in), 1, 2), operand(unit, in, in), beside(unset(in, out), 1, 0)},
         {}};
  c.op = [p](Backend& device, std::span<const Tensor> t) {
    return op::Linear{t[1], device.pack_weight(t[0], p), {}, t[2]};
  };
  c.reference = [p](const Operands& before) {
    const auto w = before[0].as<float>();
    const size_t rows = before[0].rows, cols = before[0].cols;
    std::vector<double> wanted(w.size());
    for (size_t o = 0; o < rows; ++o) {
      for (size_t i = 0; i < cols; ++i) wanted[i * rows + o] = rounded(w[o * cols + i], p);
    }
    return close_to(2, wanted, 0);
  };
  return c;
}

inline std::vector<Case> pack_weight_cases() {
  std::vector<Case> cases;
  for (const Precision p : {Precision::kF32, Precision::kBF16}) {
    for (const auto& [out, in] : {std::pair<size_t, size_t>{1, 1}, {7, 3}, {64, 64}, {65, 33}, {129, 127}, {300, 64}}) {
      cases.push_back(pack_weight_case(out, in, p));
    }
  }
  return cases;
}

inline Case transpose_case(size_t out, size_t in, size_t padded, bool ordered = true) {
  Case c{fmt::format("out {} in {}, padded {}{}", out, in, padded, ordered ? "" : ", no order"),
         {beside(random_operand(out, in, out), 1, 2), operand(random_order(in, in), in, 1),
          beside(unset(in, padded), 0, 3)},
         {}};
  c.op = [ordered](Backend&, std::span<const Tensor> t) {
    return op::TransposeInOrder{t[0], ordered ? t[1] : Tensor{}, t[2]};
  };
  c.reference = [=](const Operands& before) {
    const auto w = before[0].as<float>();
    const auto order = before[1].as<int32_t>();
    std::vector<double> wanted(in * padded, 0.0);
    for (size_t r = 0; r < in; ++r) {
      for (size_t col = 0; col < out; ++col) {
        wanted[r * padded + col] = w[col * in + (ordered ? static_cast<size_t>(order[r]) : r)];
      }
    }
    return close_to(2, wanted, 0);
  };
  return c;
}

inline std::vector<Case> transpose_cases() {
  std::vector<Case> cases;
  for (const size_t in : {1, 7, 64, 65, 200}) {
    for (const size_t out : {1, 31, 32, 33, 100, 300}) {
      cases.push_back(transpose_case(out, in, (out + 31) / 32 * 32));
      cases.push_back(transpose_case(out, in, out));
      cases.push_back(transpose_case(out, in, out, false));
    }
    cases.push_back(transpose_case(5, in, 96));
  }
  return cases;
}

}  // namespace bw::backend::conformance
