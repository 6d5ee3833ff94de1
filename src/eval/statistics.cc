#include "eval/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace bw::eval {

Estimate mean(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  if (values.empty()) return {};
  double sum = 0;
  for (const double v : values) sum += v;
  Estimate e{sum / n, 0};
  if (values.size() < 2) return e;
  double squares = 0;
  for (const double v : values) squares += (v - e.value) * (v - e.value);
  e.error = std::sqrt(squares / (n - 1) / n);
  return e;
}

Estimate perplexity(std::span<const double> nll) {
  const Estimate m = mean(nll);
  const double ppl = std::exp(m.value);
  return {ppl, ppl * m.error};
}

double percentile(std::span<const double> sorted, double p) {
  BW_CHECK(!sorted.empty() && p >= 0 && p <= 1);
  const double at = p * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

EvaluateResult summarize(const TokenComparison& t) {
  EvaluateResult r;
  r.has_reference = true;
  r.tokens = t.nll.size();
  r.perplexity = perplexity(t.nll);
  r.reference_perplexity = perplexity(t.nll_reference);
  r.kld = mean(t.kld);
  r.top1 = mean(t.same_top);
  std::vector<double> difference(t.nll.size());
  for (size_t i = 0; i < difference.size(); ++i) difference[i] = t.nll[i] - t.nll_reference[i];
  r.log_ppl_ratio = mean(difference);
  std::vector<double> sorted = t.kld;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty()) return r;
  r.kld_median = percentile(sorted, 0.5);
  r.kld_p90 = percentile(sorted, 0.9);
  r.kld_p99 = percentile(sorted, 0.99);
  r.kld_p999 = percentile(sorted, 0.999);
  r.kld_max = sorted.back();
  return r;
}

}  // namespace bw::eval
