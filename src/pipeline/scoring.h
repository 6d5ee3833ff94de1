// What two models say about the tokens of the same rows.
#pragma once

#include <algorithm>
#include <span>

#include "eval/statistics.h"
#include "pipeline/session.h"

namespace bw::pipeline {

// Calls visit(first state, first scored token, count) for chunks of at most kLogitTokens of a batch's scored tokens:
// those that have a successor, row after row, length - 1 of each.
template <typename Visit>
void for_each_chunk(const nn::RowBatch& batch, const Visit& visit) {
  for (size_t s = 0; s < batch.sequences; ++s) {
    for (size_t at = 0; at + 1 < batch.length; at += kLogitTokens) {
      visit(s * batch.length + at, s * (batch.length - 1) + at, std::min(kLogitTokens, batch.length - 1 - at));
    }
  }
}

// Appends what op::CompareLogits gave, four values a token.
inline void append_comparison(std::span<const float> values, eval::TokenComparison& tokens) {
  for (size_t i = 0; i + 3 < values.size(); i += 4) {
    tokens.kld.push_back(values[i]);
    tokens.nll_reference.push_back(values[i + 1]);
    tokens.nll.push_back(values[i + 2]);
    tokens.same_top.push_back(values[i + 3]);
  }
}

}  // namespace bw::pipeline
