// The cases of every operation. A new operation needs an entry here: a test fails without.
#pragma once

#include "backend/cases/attention.h"
#include "backend/cases/elementwise.h"
#include "backend/cases/factor.h"
#include "backend/cases/gradients.h"
#include "backend/cases/logits.h"
#include "backend/cases/movement.h"
#include "backend/cases/packing.h"
#include "backend/cases/products.h"
#include "backend/cases/refine_group.h"
#include "backend/cases/round_group.h"
#include "backend/cases/rounding.h"

namespace bw::backend::conformance {

inline constexpr size_t kOps = std::variant_size_v<Op>;

// Place of an operation among those of Op.
template <typename O, size_t I = 0>
constexpr size_t index_of() {
  if constexpr (std::is_same_v<O, std::variant_alternative_t<I, Op>>) {
    return I;
  } else {
    return index_of<O, I + 1>();
  }
}

// Names of all operations, in the order of Op.
inline std::vector<std::string_view> op_names() {
  return []<size_t... I>(std::index_sequence<I...>) {
    return std::vector<std::string_view>{std::variant_alternative_t<I, Op>::kName...};
  }
  (std::make_index_sequence<kOps>());
}

struct OpCases {
  size_t op;
  std::vector<Case> (*cases)();
};

inline const OpCases kOpCases[] = {
    {index_of<op::Fill>(), fill_cases},
    {index_of<op::Copy>(), copy_cases},
    {index_of<op::PackWeight>(), pack_weight_cases},
    {index_of<op::TransposeInOrder>(), transpose_cases},
    {index_of<op::Linear>(), linear_cases},
    {index_of<op::Gemm>(), gemm_cases},
    {index_of<op::AccumulateGram>(), gram_cases},
    {index_of<op::Symmetrize>(), symmetrize_cases},
    {index_of<op::Dot>(), dot_cases},
    {index_of<op::RmsNorm>(), rms_norm_cases},
    {index_of<op::Add>(), add_cases},
    {index_of<op::Scale>(), scale_cases},
    {index_of<op::GatedActivation>(), activation_cases},
    {index_of<op::Softcap>(), softcap_cases},
    {index_of<op::Rope>(), rope_cases},
    {index_of<op::RowSquaredNorms>(), row_norms_cases},
    {index_of<op::WeightedDifference>(), weighted_difference_cases},
    {index_of<op::RowRatios>(), row_ratios_cases},
    {index_of<op::LargestMagnitude>(), largest_magnitude_cases},
    {index_of<op::Attention>(), attention_cases},
    {index_of<op::AttentionCached>(), attention_cached_cases},
    {index_of<op::TokenNll>(), token_nll_cases},
    {index_of<op::CompareLogits>(), compare_cases},
    {index_of<op::RmsNormGradient>(), rms_norm_gradient_cases},
    {index_of<op::GatedActivationGradient>(), activation_gradient_cases},
    {index_of<op::AttentionGradient>(), attention_gradient_cases},
    {index_of<op::SampledGradient>(), sampled_gradient_cases},
    {index_of<op::InverseFactor>(), factor_cases},
    {index_of<op::HeldOutWeights>(), held_out_cases},
    {index_of<op::PriceGroups>(), price_cases},
    {index_of<op::GroupScale>(), group_scale_cases},
    {index_of<op::RoundGroup>(), round_group_cases},
    {index_of<op::RefineGroup>(), refine_group_cases},
    {index_of<op::Dequantize>(), dequantize_cases},
    {index_of<op::PackBits>(), pack_bits_cases},
    {index_of<op::UnpackBits>(), unpack_bits_cases},
    {index_of<op::PackNibbles>(), pack_nibbles_cases},
    {index_of<op::UnpackNibbles>(), unpack_nibbles_cases},
    {index_of<op::CountDifferences>(), count_cases},
};

// None where no entry names the operation.
inline std::vector<Case> cases_of(size_t op) {
  for (const OpCases& entry : kOpCases) {
    if (entry.op == op) return entry.cases();
  }
  return {};
}

}  // namespace bw::backend::conformance
