// Cases of PackBits, UnpackBits, PackNibbles, UnpackNibbles and CountDifferences.
#pragma once

#include "backend/cases/case.h"

namespace bw::backend::conformance {

// (rows · bits / 32, cols) words: bit b of code r of a column is bit r · bits + b of the column's stream.
inline std::vector<int32_t> packed_bits(std::span<const uint8_t> codes, size_t rows, size_t cols, size_t bits) {
  std::vector<uint32_t> words(rows * bits / 32 * cols, 0);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) {
      for (size_t b = 0; b < bits; ++b) {
        const size_t at = r * bits + b;
        words[at / 32 * cols + c] |= (codes[r * cols + c] >> b & 1u) << at % 32;
      }
    }
  }
  return {words.begin(), words.end()};
}

inline std::vector<int32_t> packed_nibbles(std::span<const uint8_t> codes) {
  std::vector<uint32_t> words(codes.size() / 8, 0);
  for (size_t i = 0; i < codes.size(); ++i) words[i / 8] |= uint32_t{codes[i]} << 4 * (i % 8);
  return {words.begin(), words.end()};
}

// Packing has one exact inverse: a case of either makes its operand from the same codes.
inline Case pack_bits_case(size_t rows, size_t cols, int bits, bool pack) {
  const size_t width = static_cast<size_t>(bits);
  const std::vector<uint8_t> codes = random_codes(rows * cols, 1u << width, rows + cols);
  const Operand unpacked = operand(codes, rows, cols);
  const Operand words = operand(packed_bits(codes, rows, cols, width), rows / 32 * width, cols);
  Case c{fmt::format("{} x {}, {} bits", rows, cols, bits), {}, {}};
  if (pack) {
    c.operands = {beside(unpacked, 1, 2), beside(unset(words.rows, cols, DType::kI32), 1, 1)};
    c.op = [bits](Backend&, std::span<const Tensor> t) { return op::PackBits{t[0], bits, t[1]}; };
  } else {
    c.operands = {beside(words, 0, 1), beside(unset(rows, cols, DType::kU8), 3, 2)};
    c.op = [bits](Backend&, std::span<const Tensor> t) { return op::UnpackBits{t[0], bits, t[1]}; };
  }
  c.reference = [=](const Operands&) { return same_as(1, pack ? words : unpacked); };
  return c;
}

inline std::vector<Case> pack_bits_cases_of(bool pack) {
  std::vector<Case> cases;
  for (const int bits : {2, 3, 4, 5, 6, 7, 8}) {
    for (const auto& [rows, cols] :
         {std::pair<size_t, size_t>{0, 8}, {32, 1}, {32, 32}, {64, 33}, {96, 100}, {320, 64}}) {
      cases.push_back(pack_bits_case(rows, cols, bits, pack));
    }
  }
  return cases;
}
inline std::vector<Case> pack_bits_cases() { return pack_bits_cases_of(true); }
inline std::vector<Case> unpack_bits_cases() { return pack_bits_cases_of(false); }

inline Case pack_nibbles_case(size_t rows, size_t cols, bool pack) {
  const std::vector<uint8_t> codes = random_codes(rows * cols, 16, rows + cols);
  const Operand unpacked = operand(codes, rows, cols), words = operand(packed_nibbles(codes), rows, cols / 8);
  Case c{fmt::format("{} x {}", rows, cols), {}, {}};
  if (pack) {
    c.operands = {beside(unpacked, 1, 2), beside(unset(rows, cols / 8, DType::kI32), 1, 1)};
    c.op = [](Backend&, std::span<const Tensor> t) { return op::PackNibbles{t[0], t[1]}; };
  } else {
    c.operands = {beside(words, 0, 1), beside(unset(rows, cols, DType::kU8), 3, 2)};
    c.op = [](Backend&, std::span<const Tensor> t) { return op::UnpackNibbles{t[0], t[1]}; };
  }
  c.reference = [=](const Operands&) { return same_as(1, pack ? words : unpacked); };
  return c;
}

inline std::vector<Case> pack_nibbles_cases_of(bool pack) {
  std::vector<Case> cases;
  for (const size_t rows : {0, 1, 3, 40}) {
    for (const size_t cols : {8, 24, 32, 264}) cases.push_back(pack_nibbles_case(rows, cols, pack));
  }
  return cases;
}
inline std::vector<Case> pack_nibbles_cases() { return pack_nibbles_cases_of(true); }
inline std::vector<Case> unpack_nibbles_cases() { return pack_nibbles_cases_of(false); }

// Every `step`-th element differs.
inline Case count_case(size_t rows, size_t cols, size_t step) {
  const std::vector<uint8_t> a = random_codes(rows * cols, 256, 1);
  std::vector<uint8_t> b = a;
  for (size_t i = step - 1; i < b.size(); i += step) b[i] ^= static_cast<uint8_t>(1u << i % 8);
  const auto wanted = static_cast<int32_t>(7 + b.size() / step);
  Case c{fmt::format("{} x {}, one in {}", rows, cols, step),
         {beside(operand(a, rows, cols), 1, 2), beside(operand(b, rows, cols), 2, 0),
          operand(std::vector<int32_t>{7}, 1, 1)},
         {}};
  c.op = [](Backend&, std::span<const Tensor> t) { return op::CountDifferences{t[0], t[1], t[2]}; };
  c.reference = [=](const Operands&) { return same_as(2, operand(std::vector<int32_t>{wanted}, 1, 1)); };
  return c;
}

inline std::vector<Case> count_cases() {
  std::vector<Case> cases;
  for (const size_t step : {1, 2, 3, 1000000}) {
    for (const auto& [rows, cols] : {std::pair<size_t, size_t>{0, 5}, {1, 1}, {3, 33}, {30, 70}}) {
      cases.push_back(count_case(rows, cols, step));
    }
    cases.push_back(large(count_case(200, 1000, step)));
  }
  return cases;
}

}  // namespace bw::backend::conformance
