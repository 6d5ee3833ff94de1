// Weights of errors on tokens that a factor was not made from.
#include <algorithm>

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

}  // namespace

void held_out_weights(ThreadPool& pool, const op::HeldOutWeights& op) {
  const ConstView y = floats(op.y), gains = floats(op.gains), weights = floats(op.weights);
  const View out = floats(op.held_out);
  const double sampled = sum_of(gains), scale = sum_of(floats(op.all_gains)) / sampled;
  pool.parallel_for((y.rows + op::kHeldOutRows - 1) / op::kHeldOutRows, [&](size_t block, size_t) {
    const size_t first = block * op::kHeldOutRows, last = std::min(y.rows, first + op::kHeldOutRows);
    double cost = 0, sum = 0;
    for (size_t r = first; r < last; ++r) {
      cost += weights(r, 0) * weighted_square(y.row(r), gains);
      sum += weights(r, 0);
    }
    const double ratio = sampled > 0 ? scale * cost / sum : 1;
    for (size_t r = first; r < last; ++r) out(r, 0) = static_cast<float>(ratio * weights(r, 0));
  });
}

}  // namespace bw::backend::cpu
