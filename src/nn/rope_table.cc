#include "nn/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace bw::nn {
namespace {

double original_length(const model::RopeConfig& rope, size_t max_position) {
  return static_cast<double>(rope.original_max_position != 0 ? rope.original_max_position : max_position);
}

// Dynamic NTK scaling: a longer row gets a larger base, so that its slowest rotation spans the same angle.
double base_of(const model::RopeConfig& rope, size_t head_dim, size_t max_position, size_t length) {
  if (!depends_on_length(rope, max_position, length) || head_dim <= 2) return rope.theta;
  const double stretch =
      rope.factor * static_cast<double>(length) / original_length(rope, max_position) - (rope.factor - 1.0);
  const double d = static_cast<double>(head_dim);
  return rope.theta * std::pow(stretch, d / (d - 2.0));
}

// Llama 3: short wavelengths stay, long ones are stretched by `factor`, those between are blended.
float llama3_frequency(const model::RopeConfig& rope, double original, float frequency) {
  const float factor = static_cast<float>(rope.factor);
  const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / frequency;
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / factor;
  const float smooth = (static_cast<float>(original) / wavelength - static_cast<float>(rope.low_freq_factor)) /
                       static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

std::vector<float> frequencies(const model::RopeConfig& rope, size_t head_dim, size_t max_position, size_t length) {
  const double base = base_of(rope, head_dim, max_position, length);
  std::vector<float> result(head_dim / 2);
  for (size_t i = 0; i < result.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    float f = 1.0f / static_cast<float>(std::pow(base, static_cast<double>(exponent)));
    if (rope.scaling == model::RopeScaling::kLinear) f /= static_cast<float>(rope.factor);
    if (rope.scaling == model::RopeScaling::kLlama3) f = llama3_frequency(rope, original_length(rope, max_position), f);
    result[i] = f;
  }
  return result;
}

}  // namespace

bool depends_on_length(const model::RopeConfig& rope, size_t max_position, size_t length) {
  return rope.scaling == model::RopeScaling::kDynamic &&
         static_cast<double>(length) > original_length(rope, max_position);
}

Matrix<float> rope_table(const model::RopeConfig& rope, size_t head_dim, size_t max_position, size_t length,
                         size_t first, size_t count) {
  const std::vector<float> f = frequencies(rope, head_dim, max_position, length);
  Matrix<float> table(count, head_dim);
  for (size_t r = 0; r < count; ++r) {
    float* const cos = table.row(r);
    float* const sin = cos + f.size();
    for (size_t i = 0; i < f.size(); ++i) {
      const double angle = static_cast<float>(first + r) * f[i];  // a float product, as in the reference
      cos[i] = static_cast<float>(std::cos(angle));
      sin[i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace bw::nn
