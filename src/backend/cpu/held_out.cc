// Weights of errors on tokens that a factor was not made from.
#include <algorithm>
#include <cmath>

#include "backend/cpu/ops.h"

namespace bw::backend::cpu {
namespace {

double sum_of(ConstView column) {
  double sum = 0;
  for (size_t t = 0; t < column.rows; ++t) sum += column(t, 0);
  return sum;
}

// Σ_t gain_t y_t² of one row.
double weighted_square(const float* y, ConstView gains) {
  double sum = 0;
  for (size_t t = 0; t < gains.rows; ++t) sum += double{gains(t, 0)} * y[t] * y[t];
  return sum;
}

// What the rows [first, last) cost, by their weights; see op::HeldOutWeights.
double cost_of(ConstView y, ConstView gains, double scale, ConstView weights, size_t first, size_t last) {
  double cost = 0, sum = 0;
  for (size_t r = first; r < last; ++r) {
    cost += weights(r, 0) * weighted_square(y.row(r), gains);
    sum += weights(r, 0);
  }
  return scale * cost / sum;
}

// What the cost of other tokens is multiplied by when the factor is made from 1 / share times as many.
double with_more_tokens(double cost, double own_cost, double share) {
  if (!(own_cost < cost)) return 1;
  const double noise = std::sqrt(own_cost / cost);  // 1 - p
  return noise / (1 - share * (1 - noise));
}

}  // namespace

void held_out_weights(ThreadPool& pool, const op::HeldOutWeights& op) {
  const ConstView y = floats(op.y), gains = floats(op.gains), own_gains = floats(op.own_gains),
                  weights = floats(op.weights);
  const View out = floats(op.held_out);
  const double others = sum_of(gains), own = sum_of(own_gains), all = sum_of(floats(op.all_gains));
  pool.parallel_for((y.rows + op::kHeldOutRows - 1) / op::kHeldOutRows, [&](size_t block, size_t) {
    const size_t first = block * op::kHeldOutRows, last = std::min(y.rows, first + op::kHeldOutRows);
    const double cost = others > 0 ? cost_of(y, gains, all / others, weights, first, last) : 1;
    const double own_cost = own > 0 ? cost_of(y, own_gains, all / own, weights, first, last) : cost;
    const double ratio = cost * with_more_tokens(cost, own_cost, op.share);
    for (size_t r = first; r < last; ++r) out(r, 0) = static_cast<float>(ratio * weights(r, 0));
  });
}

}  // namespace bw::backend::cpu
