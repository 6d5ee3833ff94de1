// Weights of errors on tokens that a factor was not made from.
#include "backend/cuda/kernels.cuh"
#include "backend/cuda/scratch.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

constexpr unsigned kThreads = 256;

// costs[r] = Σ_t gain_t y_rt², a block for each row; the block after the last row: the sums of both kinds of gains.
__global__ void row_costs_kernel(ConstFloats y, ConstFloats gains, ConstFloats all_gains, double* costs) {
  __shared__ double scratch[kThreads];
  const size_t r = blockIdx.x;
  if (r == y.rows) {
    double some = 0, all = 0;
    for (size_t t = threadIdx.x; t < gains.rows; t += blockDim.x) some += gains(t, 0);
    for (size_t t = threadIdx.x; t < all_gains.rows; t += blockDim.x) all += all_gains(t, 0);
    some = block_sum(some, scratch);
    all = block_sum(all, scratch);
    if (threadIdx.x == 0) costs[r] = some, costs[r + 1] = all;
    return;
  }
  double cost = 0;
  for (size_t t = threadIdx.x; t < gains.rows; t += blockDim.x) {
    cost += static_cast<double>(gains(t, 0)) * y(r, t) * y(r, t);
  }
  cost = block_sum(cost, scratch);
  if (threadIdx.x == 0) costs[r] = cost;
}

// A block of kHeldOutRows threads for as many rows.
__global__ void held_out_kernel(const double* costs, ConstFloats weights, Floats out) {
  __shared__ double scratch[op::kHeldOutRows];
  const size_t r = size_t{blockIdx.x} * blockDim.x + threadIdx.x, n = weights.rows;
  const double weight = r < n ? weights(r, 0) : 0;
  const double cost = block_sum(r < n ? weight * costs[r] : 0.0, scratch), sum = block_sum(weight, scratch);
  const double ratio = costs[n] > 0 ? costs[n + 1] / costs[n] * cost / sum : 1;
  if (r < n) out(r, 0) = static_cast<float>(ratio * weight);
}

}  // namespace

void held_out_weights(cudaStream_t stream, Scratch& scratch, const op::HeldOutWeights& op) {
  const ConstFloats y = floats(op.y), weights = floats(op.weights);
  if (y.rows == 0) return;
  double* const costs = scratch.take<double>(y.rows + 2);
  BW_LAUNCH(row_costs_kernel, as_grid(y.rows + 1), kThreads, 0, stream, y, floats(op.gains), floats(op.all_gains),
            costs);
  BW_LAUNCH(held_out_kernel, as_grid(ceil_div(y.rows, op::kHeldOutRows)), op::kHeldOutRows, 0, stream, costs, weights,
            floats(op.held_out));
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
