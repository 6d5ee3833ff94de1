// What each token counts in a Hessian.
#pragma once

#include <span>
#include <vector>

#include "base/matrix.h"

namespace bw::pipeline {

// gains (tokens, linears); columns: the linears that share the Hessian. (tokens): the square root of the mean over
// these of their gains, each linear's divided by its own mean over the tokens. By the mathematics the gains themselves
// would be the weights (design: 'Cost in nats'). But the gain of one linear at one token comes from one drawn
// successor: it is mostly noise with a long tail, and a Hessian ruled by few tokens fits these. Linears that read the
// same input largely agree on which tokens matter, so their mean says it better than each alone, and the root keeps
// more tokens in play (docs/quality.md has the figures). Only ratios between tokens matter to rounding, so units are
// lost without harm. A linear without any gain says nothing; ones if there is no other.
std::vector<float> token_weights(const Matrix<float>& gains, std::span<const size_t> columns);

}  // namespace bw::pipeline
