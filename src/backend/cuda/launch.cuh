// What kernels and their launches share. Kernels use plain CUDA C++ alone: thread indices, shared memory and
// __syncthreads. So they also run on the host, thread by thread, in the tests (tests/backend/fake_cuda).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "backend/cuda/check.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {

inline constexpr size_t kMostGridY = 65535;  // also of z; x goes to 2^31 - 1

// Starts a kernel; a template's name stands in parentheses. `shared_bytes`: of dynamic shared memory.
#ifndef BW_LAUNCH
#define BW_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)         \
  do {                                                                    \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__);   \
    ::bw::backend::BW_CUDA_NAMESPACE::check(cudaGetLastError(), #kernel); \
  } while (0)
// In a kernel: `name` points to its dynamic shared memory.
#define BW_DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

// A row-major matrix in device memory: row r begins r * stride elements after the first.
template <typename T>
struct View {
  T* data = nullptr;
  size_t rows = 0, cols = 0, stride = 0;

  __host__ __device__ T* row(size_t r) const { return data + r * stride; }
  __host__ __device__ T& operator()(size_t r, size_t c) const { return data[r * stride + c]; }
  // A mutable view is usable where a constant one is wanted.
  template <typename U>
  requires(std::is_same_v<U, const T> && !std::is_const_v<T>) __host__ __device__ operator View<U>() const {
    return {data, rows, cols, stride};
  }
  View rows_slice(size_t first, size_t count) const { return {data + first * stride, count, cols, stride}; }
  View cols_slice(size_t first, size_t count) const { return {data + first, rows, count, stride}; }
};

using Floats = View<float>;
using ConstFloats = View<const float>;
using Bytes = View<uint8_t>;
using ConstBytes = View<const uint8_t>;
using Ints = View<int32_t>;
using ConstInts = View<const int32_t>;

inline __host__ __device__ size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }
inline unsigned as_grid(size_t n) { return static_cast<unsigned>(n); }

// The thread's place in a grid of one dimension.
inline __device__ size_t global_thread() { return size_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// Combines the values of a block's threads, always in the same order; every thread gets the result. The block is one-
// dimensional, of a power of two threads; scratch: a value for each, in shared memory.
template <typename T, typename Combine>
__device__ T block_reduce(T x, T* scratch, const Combine& combine) {
  const unsigned t = threadIdx.x;
  scratch[t] = x;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (t < half) scratch[t] = combine(scratch[t], scratch[t + half]);
    __syncthreads();
  }
  const T result = scratch[0];
  __syncthreads();  // scratch may be used again
  return result;
}

template <typename T>
struct Sum {
  __device__ T operator()(T a, T b) const { return a + b; }
};

template <typename T>
__device__ T block_sum(T x, T* scratch) {
  return block_reduce(x, scratch, Sum<T>());
}

template <typename Body>
__global__ void each_kernel(Body body, size_t rows, size_t cols) {
  const size_t row_step = size_t{gridDim.y} * blockDim.y, col_step = size_t{gridDim.x} * blockDim.x;
  for (size_t r = size_t{blockIdx.y} * blockDim.y + threadIdx.y; r < rows; r += row_step) {
    for (size_t c = size_t{blockIdx.x} * blockDim.x + threadIdx.x; c < cols; c += col_step) body(r, c);
  }
}

// Enqueues body(r, c) for every element of (rows, cols). Body: a struct with a __device__ operator().
template <typename Body>
void for_each(cudaStream_t stream, size_t rows, size_t cols, const Body& body) {
  if (rows == 0 || cols == 0) return;
  constexpr unsigned kThreads = 256;
  unsigned width = 1;
  while (width < kThreads && width < cols) width *= 2;
  const dim3 block(width, kThreads / width);
  const dim3 grid(as_grid(ceil_div(cols, block.x)), as_grid(std::min(ceil_div(rows, block.y), kMostGridY)));
  BW_LAUNCH((each_kernel<Body>), grid, block, 0, stream, body, rows, cols);
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
