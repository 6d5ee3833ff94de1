// Weights must be numbers.
#pragma once

#include <span>
#include <string_view>

#include "io/safetensors.h"
#include "model/findings.h"

namespace bw::model {

// Throws Error(kModel) with the place of the first of `values` that is not finite. They are rows of `cols` of tensor
// `name`, from row `first_row` on.
void check_finite(std::span<const float> values, size_t cols, size_t first_row, std::string_view name);

// The same for a sample of a tensor of a float type, cheap for any size: kSampledRows rows at even distances, the first
// and the last among them.
inline constexpr size_t kSampledRows = 8;
void check_finite_sample(const io::TensorData& tensor);

}  // namespace bw::model
