// Means with standard errors, and percentiles, of values per token.
#pragma once

#include <span>
#include <vector>

#include "bitwright/options.h"

namespace bw::eval {

// Mean and its standard error, values taken as independent (sample standard deviation / sqrt(n)); error 0 for fewer
// than 2 values.
Estimate mean(std::span<const double> values);

// exp of the mean of negative log-likelihoods in nats; its error by the delta method: ppl · error of the mean.
Estimate perplexity(std::span<const double> nll);

// Value below which the share p (0..1) of the values lies, with linear interpolation between neighbours (numpy's
// default). `sorted` ascending, not empty.
double percentile(std::span<const double> sorted, double p);

// Values of two models on the same tokens.
struct TokenComparison {
  std::vector<double> kld, nll_reference, nll, same_top;  // nats; same_top is 1 or 0
};

// The result's statistics (all fields that come from tokens).
EvaluateResult summarize(const TokenComparison& tokens);

}  // namespace bw::eval
