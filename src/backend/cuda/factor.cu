#include "backend/cuda/factor.cuh"

#include "backend/cuda/slow_cholesky.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

constexpr unsigned kThreads = 256;
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

struct Larger {
  __device__ int32_t operator()(int32_t a, int32_t b) const { return a > b ? a : b; }
};
struct Smaller {
  __device__ int32_t operator()(int32_t a, int32_t b) const { return a < b ? a : b; }
};

// bad[i] = 1 if row i of the upper triangle is not as it must be (see op::kNotFinite), else 0. A block for every row.
__global__ void check_rows_kernel(ConstFloats h, int32_t* bad) {
  __shared__ int32_t scratch[kThreads];
  const size_t i = blockIdx.x;
  int32_t found = h(i, i) < 0 ? 1 : 0;
  for (size_t j = i + threadIdx.x; j < h.cols; j += blockDim.x) found |= isfinite(h(i, j)) ? 0 : 1;
  found = block_reduce(found, scratch, Larger());
  if (threadIdx.x == 0) bad[i] = found;
}

// The status, the mean of the diagonal, and the diagonal with dead inputs at the mean. Where a row is bad, the diagonal
// is one: then all that follows works on the identity.
__global__ void summarize_kernel(ConstFloats h, const int32_t* bad, int32_t* status, float* mean, float* diagonal) {
  __shared__ int32_t counts[kThreads];
  __shared__ double sums[kThreads];
  const size_t n = h.rows;
  const int32_t none = static_cast<int32_t>(n);
  int32_t first = none, dead = 0;
  double sum = 0;
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
    if (bad[i] != 0 && first == none) first = static_cast<int32_t>(i);
    dead += h(i, i) == 0 ? 1 : 0;
    sum += h(i, i);
  }
  first = block_reduce(first, counts, Smaller());
  dead = block_sum(dead, counts);
  sum = block_sum(sum, sums);
  const float average = dead == none ? 1.0f : static_cast<float>(sum / static_cast<double>(none - dead));
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
    const float d = h(i, i) == 0 ? average : h(i, i);
    diagonal[i] = first == none ? d : 1.0f;
  }
  if (threadIdx.x != 0) return;
  status[op::kDampingSteps] = 0;
  status[op::kDeadInputs] = dead;
  status[op::kNotFinite] = first == none ? 0 : first + 1;
  status[op::kReserved] = 0;
  *mean = first == none ? average : 1.0f;
}

// order[rank of i] = i, where the rank is the number of inputs that come before: larger ones, and equal ones of smaller
// index.
__global__ void order_kernel(const float* diagonal, size_t n, int32_t* order, size_t stride) {
  __shared__ float tile[kThreads];
  const size_t i = global_thread();
  const float own = i < n ? diagonal[i] : 0.0f;
  size_t rank = 0;
  for (size_t first = 0; first < n; first += kThreads) {
    __syncthreads();
    if (first + threadIdx.x < n) tile[threadIdx.x] = diagonal[first + threadIdx.x];
    __syncthreads();
    const size_t count = n - first < kThreads ? n - first : kThreads;
    for (size_t j = 0; j < count; ++j) {
      const float other = tile[j];
      rank += other > own || (other == own && first + j < i);
    }
  }
  if (i < n) order[rank * stride] = static_cast<int32_t>(i);
}

struct IdentityBody {
  Floats x;
  __device__ void operator()(size_t r, size_t c) const { x(r, c) = r == c ? 1.0f : 0.0f; }
};

struct ReversedBody {
  DampedHessian h;
  float* a;
  __device__ void operator()(size_t r, size_t c) const {
    if (c <= r) a[r * h.n() + c] = h.at(r, c, h.damping);
  }
};

// u holds V, below and on the diagonal; it becomes U: u[i][j] = v[n-1-i][n-1-j], zero below the diagonal. Threads take
// elements on and below the diagonal.
struct UnreverseBody {
  Floats u, weights;
  __device__ void set_diagonal(size_t i, float value) const {
    u(i, i) = value;
    weights(i, 0) = 1.0f / (value * value);
  }
  __device__ void operator()(size_t i, size_t j) const {
    const size_t last = u.rows - 1;
    if (i > j) {
      u(last - i, last - j) = u(i, j);
      u(i, j) = 0;
    } else if (i == j && i <= last - i) {
      const float a = u(i, i), b = u(last - i, last - i);
      set_diagonal(i, b);
      set_diagonal(last - i, a);
    }
  }
};

// What was factored, in its order; diagonal in the end, where h could not be.
struct OrderedBody {
  DampedHessian h;
  Floats ordered;
  __device__ void operator()(size_t r, size_t c) const {
    const int32_t steps = h.status[op::kDampingSteps];
    if (steps > op::kMaxDampingSteps) {
      ordered(r, c) = r == c ? h.diagonal[r] : 0.0f;
      return;
    }
    float damping = h.damping;
    for (int32_t step = 0; step < steps; ++step) damping *= 10;
    const size_t last = h.n() - 1;
    ordered(r, c) = h.at(last - r, last - c, damping);
  }
};

}  // namespace

Factorizer::Factorizer(Device& device, const Allocate& allocate)
    : allocate_(allocate), stream_(device.stream(Queue::kCompute)) {
  BW_CUDA_CALL(cudaMallocAsync, &workspace_, kWorkspaceBytes, stream_);
  BW_CUDA_CALL(cublasCreate, &blas_);
  BW_CUDA_CALL(cublasSetStream, blas_, stream_);
  BW_CUDA_CALL(cublasSetWorkspace, blas_, workspace_, kWorkspaceBytes);
  BW_CUDA_CALL(cusolverDnCreate, &solver_);
  BW_CUDA_CALL(cusolverDnSetStream, solver_, stream_);
}

Factorizer::~Factorizer() {
  cusolverDnDestroy(solver_);
  cublasDestroy(blas_);
  cudaFreeAsync(workspace_, stream_);
}

// The matrix is reversed by rows, below its diagonal: read by columns, as the libraries do, that is above it. There
// a = Cᵀ C gives V = C⁻¹, and U = V reversed back.
void Factorizer::inverse_factor(const op::InverseFactor& op) {
  const ConstFloats h = floats(op.h);
  const Floats u = floats(op.u);
  const Ints order = view_of<int32_t>(op.order);
  int32_t* const status = view_of<int32_t>(op.status).data;
  const size_t n = h.rows;
  const int size = static_cast<int>(n), stride = static_cast<int>(u.stride);
  Scratch scratch(allocate_);
  auto* const bad = scratch.take<int32_t>(n);
  auto* const mean = scratch.take<float>(1);
  auto* const diagonal = scratch.take<float>(n);
  auto* const a = scratch.take<float>(n * n);
  auto* const info = scratch.take<int32_t>(1);
  BW_LAUNCH(check_rows_kernel, as_grid(n), kThreads, 0, stream_, h, bad);
  BW_LAUNCH(summarize_kernel, 1, kThreads, 0, stream_, h, bad, status, mean, diagonal);
  BW_LAUNCH(order_kernel, as_grid(ceil_div(n, kThreads)), kThreads, 0, stream_, diagonal, n, order.data, order.stride);
  const DampedHessian damped{h, order, diagonal, mean, status, op.damping};
  for_each(stream_, n, n, ReversedBody{damped, a});

  int room = 0;
  BW_CUDA_CALL(cusolverDnSpotrf_bufferSize, solver_, CUBLAS_FILL_MODE_UPPER, size, a, size, &room);
  BW_CUDA_CALL(cusolverDnSpotrf, solver_, CUBLAS_FILL_MODE_UPPER, size, a, size,
               scratch.take<float>(static_cast<size_t>(room)), room, info);
  factor_if_failed(stream_, damped, info, a, order, status);

  for_each(stream_, n, n, IdentityBody{u});
  const float one = 1;
  BW_CUDA_CALL(cublasStrsm, blas_, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, size,
               size, &one, a, size, u.data, stride);
  for_each(stream_, n, n, UnreverseBody{u, floats(op.weights)});
  if (op.ordered.memory) for_each(stream_, n, n, OrderedBody{damped, floats(op.ordered)});
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
