// Operations that sum along rows, and over all elements.
#include "backend/cuda/kernels.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

constexpr unsigned kMostThreads = 256;

// Threads for the sum of n elements.
unsigned threads_for(size_t n) { return n <= 512 ? 64 : kMostThreads; }

// A block for every run of weight.cols columns.
__global__ void rms_norm_kernel(ConstFloats x, ConstFloats weight, float eps, Floats y) {
  __shared__ float scratch[kMostThreads];
  const size_t n = weight.cols, runs = x.cols / n, r = blockIdx.x / runs, first = blockIdx.x % runs * n;
  const float* const from = x.row(r) + first;
  float* const to = y.row(r) + first;
  float sum = 0;
  for (size_t c = threadIdx.x; c < n; c += blockDim.x) sum = fmaf(from[c], from[c], sum);
  const float mean = block_sum(sum, scratch) / static_cast<float>(n);
  const float factor = 1.0f / sqrtf(mean + eps);
  for (size_t c = threadIdx.x; c < n; c += blockDim.x) to[c] = from[c] * factor * weight(0, c);
}

// A block for every run. dx may be dy: both sums are known before anything is written.
__global__ void rms_norm_gradient_kernel(ConstFloats x, ConstFloats weight, float eps, ConstFloats dy, bool accumulate,
                                         Floats dx) {
  __shared__ float scratch[kMostThreads];
  const size_t n = weight.cols, runs = x.cols / n, r = blockIdx.x / runs, first = blockIdx.x % runs * n;
  const float *const from = x.row(r) + first, *const slope = dy.row(r) + first;
  float* const to = dx.row(r) + first;
  float squares = 0, sum = 0;
  for (size_t c = threadIdx.x; c < n; c += blockDim.x) {
    squares = fmaf(from[c], from[c], squares);
    sum = fmaf(weight(0, c) * slope[c], from[c], sum);
  }
  const float count = static_cast<float>(n);
  const float factor = 1.0f / sqrtf(block_sum(squares, scratch) / count + eps);
  const float along = factor * factor * factor * (block_sum(sum, scratch) / count);
  for (size_t c = threadIdx.x; c < n; c += blockDim.x) {
    const float gradient = factor * (weight(0, c) * slope[c]) - from[c] * along;
    to[c] = accumulate ? to[c] + gradient : gradient;
  }
}

__global__ void row_squared_norms_kernel(ConstFloats x, ConstFloats minus, Floats out) {
  __shared__ float scratch[kMostThreads];
  const size_t r = blockIdx.x;
  float sum = 0;
  for (size_t c = threadIdx.x; c < x.cols; c += blockDim.x) {
    const float v = minus.data != nullptr ? x(r, c) - minus(r, c) : x(r, c);
    sum = fmaf(v, v, sum);
  }
  const float total = block_sum(sum, scratch);
  if (threadIdx.x == 0) out(r, 0) = total;
}

__global__ void row_dots_kernel(ConstFloats a, ConstFloats b, double* sums) {
  __shared__ float scratch[kMostThreads];
  const size_t r = blockIdx.x;
  float sum = 0;
  for (size_t c = threadIdx.x; c < a.cols; c += blockDim.x) sum = fmaf(a(r, c), b(r, c), sum);
  const float total = block_sum(sum, scratch);
  if (threadIdx.x == 0) sums[r] = total;
}

__global__ void row_differences_kernel(ConstBytes a, ConstBytes b, int32_t* counts) {
  __shared__ int32_t scratch[kMostThreads];
  const size_t r = blockIdx.x;
  int32_t count = 0;
  for (size_t c = threadIdx.x; c < a.cols; c += blockDim.x) count += a(r, c) != b(r, c);
  const int32_t total = block_sum(count, scratch);
  if (threadIdx.x == 0) counts[r] = total;
}

struct Largest {
  __device__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }  // NaN stays
};

__global__ void row_largest_kernel(ConstFloats x, float* largest) {
  __shared__ float scratch[kMostThreads];
  const size_t r = blockIdx.x;
  float most = 0;
  for (size_t c = threadIdx.x; c < x.cols; c += blockDim.x) most = Largest()(fabsf(x(r, c)), most);
  const float of_row = block_reduce(most, scratch, Largest());
  if (threadIdx.x == 0) largest[r] = of_row;
}

// *largest = the largest of it and of n values, by one block.
__global__ void largest_kernel(const float* values, size_t n, float* largest) {
  __shared__ float scratch[kMostThreads];
  float most = *largest;
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) most = Largest()(values[i], most);
  const float of_all = block_reduce(most, scratch, Largest());
  if (threadIdx.x == 0) *largest = of_all;
}

// *sum += Σ values, by one block.
template <typename In, typename T>
__global__ void add_up_kernel(const In* values, size_t n, size_t stride, T* sum) {
  __shared__ T scratch[kMostThreads];
  T part = 0;
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) part += static_cast<T>(values[i * stride]);
  const T total = block_sum(part, scratch);
  if (threadIdx.x == 0) *sum += total;
}

template <typename In, typename T>
void add_up_strided(cudaStream_t stream, const In* values, size_t n, size_t stride, T* sum) {
  BW_LAUNCH((add_up_kernel<In, T>), 1, threads_for(n), 0, stream, values, n, stride, sum);
}

struct RatioBody {
  ConstFloats numerator, denominator;
  Floats out;
  __device__ void operator()(size_t r, size_t) const {
    const float below = denominator(r, 0), above = numerator.data != nullptr ? numerator(r, 0) : 1.0f;
    out(r, 0) = below > 0 ? above / below : 0.0f;
  }
};

}  // namespace

void rms_norm(cudaStream_t stream, ConstFloats x, ConstFloats weight, float eps, Floats y) {
  const size_t runs = x.rows * (x.cols / weight.cols);
  if (runs == 0) return;
  BW_LAUNCH(rms_norm_kernel, as_grid(runs), threads_for(weight.cols), 0, stream, x, weight, eps, y);
}

void rms_norm_gradient(cudaStream_t stream, ConstFloats x, ConstFloats weight, float eps, ConstFloats dy,
                       bool accumulate, Floats dx) {
  const size_t runs = x.rows * (x.cols / weight.cols);
  if (runs == 0) return;
  BW_LAUNCH(rms_norm_gradient_kernel, as_grid(runs), threads_for(weight.cols), 0, stream, x, weight, eps, dy,
            accumulate, dx);
}

void row_squared_norms(cudaStream_t stream, ConstFloats x, ConstFloats minus, Floats out) {
  if (x.rows == 0) return;
  BW_LAUNCH(row_squared_norms_kernel, as_grid(x.rows), threads_for(x.cols), 0, stream, x, minus, out);
}

void row_ratios(cudaStream_t stream, ConstFloats numerator, ConstFloats denominator, Floats out, double* sum) {
  for_each(stream, out.rows, out.cols, RatioBody{numerator, denominator, out});
  if (sum != nullptr && out.rows != 0) add_up_strided(stream, out.data, out.rows, out.stride, sum);
}

void dot(cudaStream_t stream, Scratch& scratch, ConstFloats a, ConstFloats b, double* sum) {
  if (a.rows == 0 || a.cols == 0) return;
  double* const rows = scratch.take<double>(a.rows);
  BW_LAUNCH(row_dots_kernel, as_grid(a.rows), threads_for(a.cols), 0, stream, a, b, rows);
  add_up(stream, rows, a.rows, sum);
}

void largest_magnitude(cudaStream_t stream, Scratch& scratch, ConstFloats x, float* largest) {
  if (x.rows == 0 || x.cols == 0) return;
  float* const rows = scratch.take<float>(x.rows);
  BW_LAUNCH(row_largest_kernel, as_grid(x.rows), threads_for(x.cols), 0, stream, x, rows);
  BW_LAUNCH(largest_kernel, 1, threads_for(x.rows), 0, stream, rows, x.rows, largest);
}

void count_differences(cudaStream_t stream, Scratch& scratch, ConstBytes a, ConstBytes b, int32_t* count) {
  if (a.rows == 0 || a.cols == 0) return;
  int32_t* const rows = scratch.take<int32_t>(a.rows);
  BW_LAUNCH(row_differences_kernel, as_grid(a.rows), threads_for(a.cols), 0, stream, a, b, rows);
  add_up_strided(stream, rows, a.rows, 1, count);
}

void add_up(cudaStream_t stream, const double* values, size_t n, double* sum) {
  add_up_strided(stream, values, n, 1, sum);
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
