#include "backend/cuda/slow_cholesky.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kTile = 32;

using SharedTile = float[kTile][kTile + 1];

struct Both {
  __device__ int32_t operator()(int32_t a, int32_t b) const { return a & b; }
};

__device__ bool finite_diagonal(const float* a, size_t n, int32_t* scratch) {
  int32_t good = 1;
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) good &= isfinite(a[i * n + i]) ? 1 : 0;
  return block_reduce(good, scratch, Both()) != 0;
}

// tile = a[r0.., c0..], zero outside of the matrix and past `cols` columns.
__device__ void load(const float* a, size_t n, size_t r0, size_t c0, unsigned cols, SharedTile& tile) {
  for (unsigned i = threadIdx.x; i < kTile * kTile; i += blockDim.x) {
    const unsigned r = i / kTile, c = i % kTile;
    tile[r][c] = r0 + r < n && c < cols ? a[(r0 + r) * n + c0 + c] : 0.0f;
  }
}

// The diagonal tile becomes its factor, b columns. False if it is not positive definite.
__device__ bool factor_tile(SharedTile& d, unsigned b) {
  for (unsigned j = 0; j < b; ++j) {
    const float square = d[j][j];
    if (!(square > 0) || !isfinite(square)) return false;  // all threads see the same
    const float root = sqrtf(square);
    __syncthreads();
    for (unsigned r = j + threadIdx.x; r < b; r += blockDim.x) d[r][j] = r == j ? root : d[r][j] / root;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < b * b; i += blockDim.x) {
      const unsigned r = i / b, c = i % b;
      if (c > j && r >= c) d[r][c] = fmaf(-d[r][j], d[c][j], d[r][c]);
    }
    __syncthreads();
  }
  return true;
}

// The rows below the diagonal tile at k become rows of the factor.
__device__ void solve_panel(float* a, size_t n, size_t k, unsigned b, const SharedTile& d) {
  for (size_t r = k + b + threadIdx.x; r < n; r += blockDim.x) {
    float* const row = a + r * n + k;
    for (unsigned c = 0; c < b; ++c) {
      float x = row[c];
      for (unsigned s = 0; s < c; ++s) x = fmaf(-row[s], d[c][s], x);
      row[c] = x / d[c][c];
    }
  }
}

// The lower triangle past the panel at k loses the panel's products.
__device__ void update_rest(float* a, size_t n, size_t k, unsigned b, SharedTile& left, SharedTile& right) {
  for (size_t r0 = k + b; r0 < n; r0 += kTile) {
    for (size_t c0 = k + b; c0 <= r0; c0 += kTile) {
      __syncthreads();
      load(a, n, r0, k, b, left);
      load(a, n, c0, k, b, right);
      __syncthreads();
      for (unsigned i = threadIdx.x; i < kTile * kTile; i += blockDim.x) {
        const size_t r = r0 + i / kTile, c = c0 + i % kTile;
        if (r >= n || c > r) continue;
        float x = a[r * n + c];
        for (unsigned s = 0; s < b; ++s) x = fmaf(-left[i / kTile][s], right[i % kTile][s], x);
        a[r * n + c] = x;
      }
    }
  }
  __syncthreads();
}

// a = L Lᵀ, in the lower triangle.
__device__ bool cholesky(float* a, size_t n, SharedTile& diagonal, SharedTile& left, SharedTile& right) {
  for (size_t k = 0; k < n; k += kTile) {
    const unsigned b = static_cast<unsigned>(n - k < kTile ? n - k : kTile);
    load(a, n, k, k, b, diagonal);
    __syncthreads();
    const bool good = factor_tile(diagonal, b);
    if (!good) return false;
    for (unsigned i = threadIdx.x; i < b * b; i += blockDim.x) {
      if (i % b <= i / b) a[(k + i / b) * n + k + i % b] = diagonal[i / b][i % b];
    }
    solve_panel(a, n, k, b, diagonal);
    __syncthreads();
    update_rest(a, n, k, b, left, right);
  }
  return true;
}

__global__ void factor_if_failed_kernel(DampedHessian h, const int32_t* info, float* a, Ints order, int32_t* status) {
  __shared__ SharedTile diagonal, left, right;
  __shared__ int32_t scratch[kThreads];
  const size_t n = h.n();
  if (*info == 0 && finite_diagonal(a, n, scratch)) return;
  float damping = h.damping;
  for (int32_t step = 1; step <= op::kMaxDampingSteps; ++step) {
    damping *= 10;
    __syncthreads();
    for (size_t i = threadIdx.x; i < n * n; i += blockDim.x) {
      if (i % n <= i / n) a[i] = h.at(i / n, i % n, damping);
    }
    __syncthreads();
    if (!cholesky(a, n, diagonal, left, right)) continue;
    if (threadIdx.x == 0) status[op::kDampingSteps] = step;
    return;
  }
  __syncthreads();
  for (size_t i = threadIdx.x; i < n * n; i += blockDim.x) {
    const size_t r = i / n;
    if (i % n <= r) a[i] = i % n == r ? sqrtf(h.diagonal[n - 1 - r]) : 0.0f;
  }
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) order(i, 0) = static_cast<int32_t>(i);
  if (threadIdx.x == 0) status[op::kDampingSteps] = op::kMaxDampingSteps + 1;
}

}  // namespace

void factor_if_failed(cudaStream_t stream, const DampedHessian& h, const int32_t* info, float* a, Ints order,
                      int32_t* status) {
  BW_LAUNCH(factor_if_failed_kernel, 1, kThreads, 0, stream, h, info, a, order, status);
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
