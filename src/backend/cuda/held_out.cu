// Weights of errors on tokens that a factor was not made from.
#include "backend/cuda/kernels.cuh"
#include "backend/cuda/scratch.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

constexpr unsigned kThreads = 256;

// costs[r] = Σ_t gain_t y_rt², a block for each row; the block after the last row: the sum of gains.
__global__ void row_costs_kernel(ConstFloats y, ConstFloats gains, double* costs) {
  __shared__ double scratch[kThreads];
  const size_t r = blockIdx.x;
  double cost = 0;
  for (size_t t = threadIdx.x; t < gains.rows; t += blockDim.x) {
    cost += r == y.rows ? gains(t, 0) : static_cast<double>(gains(t, 0)) * y(r, t) * y(r, t);
  }
  cost = block_sum(cost, scratch);
  if (threadIdx.x == 0) costs[r] = cost;
}

__global__ void sum_kernel(ConstFloats column, double* sum) {
  __shared__ double scratch[kThreads];
  double mine = 0;
  for (size_t t = threadIdx.x; t < column.rows; t += blockDim.x) mine += column(t, 0);
  mine = block_sum(mine, scratch);
  if (threadIdx.x == 0) *sum = mine;
}

// A block of kHeldOutRows threads for as many rows. costs, own_costs: by row_costs_kernel.
__global__ void held_out_kernel(const double* costs, const double* own_costs, const double* all, double share,
                                ConstFloats weights, Floats out) {
  __shared__ double scratch[op::kHeldOutRows];
  const size_t r = size_t{blockIdx.x} * blockDim.x + threadIdx.x, n = weights.rows;
  const double weight = r < n ? weights(r, 0) : 0, sum = block_sum(weight, scratch);
  const double others = block_sum(r < n ? weight * costs[r] : 0.0, scratch) / sum;
  const double own = block_sum(r < n ? weight * own_costs[r] : 0.0, scratch) / sum;
  const double cost = costs[n] > 0 ? *all / costs[n] * others : 1;
  const double own_cost = own_costs[n] > 0 ? *all / own_costs[n] * own : cost;
  const double noise = own_cost < cost ? sqrt(own_cost / cost) : 1;
  if (r < n) out(r, 0) = static_cast<float>(cost * noise / (1 - share * (1 - noise)) * weight);
}

}  // namespace

void held_out_weights(cudaStream_t stream, Scratch& scratch, const op::HeldOutWeights& op) {
  const ConstFloats y = floats(op.y), weights = floats(op.weights);
  if (y.rows == 0) return;
  double* const costs = scratch.take<double>(2 * (y.rows + 1) + 1);
  double *const own_costs = costs + y.rows + 1, *const all = own_costs + y.rows + 1;
  BW_LAUNCH(row_costs_kernel, as_grid(y.rows + 1), kThreads, 0, stream, y, floats(op.gains), costs);
  BW_LAUNCH(row_costs_kernel, as_grid(y.rows + 1), kThreads, 0, stream, y, floats(op.own_gains), own_costs);
  BW_LAUNCH(sum_kernel, 1, kThreads, 0, stream, floats(op.all_gains), all);
  BW_LAUNCH(held_out_kernel, as_grid(ceil_div(y.rows, op::kHeldOutRows)), op::kHeldOutRows, 0, stream, costs, own_costs,
            all, double{op.share}, weights, floats(op.held_out));
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
