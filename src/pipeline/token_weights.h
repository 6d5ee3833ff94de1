// What each token counts in a Hessian.
#pragma once

#include <span>
#include <vector>

#include "base/matrix.h"

namespace bw::pipeline {

// gains (tokens, linears); columns: the linears that share the Hessian. (tokens): the mean over these of their gains,
// each linear's divided by its own mean over the tokens. The gain of one linear at one token comes from one drawn
// successor and is mostly noise; linears that read the same input agree largely on which tokens matter, and their mean
// says it better than each alone (docs/quality.md has the figures). Only ratios between tokens matter to rounding, so
// units are lost without harm. A linear without any gain says nothing; ones if there is no other.
std::vector<float> token_weights(const Matrix<float>& gains, std::span<const size_t> columns);

}  // namespace bw::pipeline
