// Fills, copies, conversions and transpositions.
#include "backend/cuda/kernels.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

constexpr unsigned kTile = 32;     // a tile of a transposition is kTile x kTile
constexpr unsigned kTileRows = 8;  // rows of threads of its block

__device__ float as_float(float x) { return x; }
__device__ float as_float(BFloat16 x) { return to_float(x); }
__device__ float as_float(Half x) { return to_float(x); }

__device__ void store(float x, float& to) { to = x; }
__device__ void store(float x, BFloat16& to) { to = to_bfloat16(x); }
__device__ void store(float x, Half& to) { to = to_half(x); }

template <typename T>
struct FillBody {
  View<T> x;
  T value;
  __device__ void operator()(size_t r, size_t c) const { x(r, c) = value; }
};

template <typename S, typename D>
struct ConvertBody {
  View<const S> src;
  View<D> dst;
  __device__ void operator()(size_t r, size_t c) const { store(as_float(src(r, c)), dst(r, c)); }
};

template <typename D>
struct ScaleRowsBody {
  ConstFloats x, factors;
  View<D> dst;
  __device__ void operator()(size_t r, size_t c) const { store(factors(r, 0) * x(r, c), dst(r, c)); }
};

template <typename T>
void fill_as(cudaStream_t stream, const Tensor& x, T value) {
  for_each(stream, x.rows, x.cols, FillBody<T>{view_of<T>(x), value});
}

template <typename S, typename D>
void convert(cudaStream_t stream, const Tensor& src, const Tensor& dst) {
  for_each(stream, src.rows, src.cols, ConvertBody<S, D>{view_of<const S>(src), view_of<D>(dst)});
}

template <typename S>
void convert_from(cudaStream_t stream, const Tensor& src, const Tensor& dst) {
  if (dst.dtype == DType::kF32) return convert<S, float>(stream, src, dst);
  if (dst.dtype == DType::kBF16) return convert<S, BFloat16>(stream, src, dst);
  return convert<S, Half>(stream, src, dst);
}

// Of one type: bits as they are.
void copy_bits(cudaStream_t stream, const Tensor& src, const Tensor& dst) {
  const size_t element = dtype_size(src.dtype), width = src.cols * element;
  const std::byte* from = view_of<std::byte>(src).data;
  std::byte* const to = view_of<std::byte>(dst).data;
  if (src.rows == 1 || (src.stride == src.cols && dst.stride == dst.cols)) {
    BW_CUDA_CALL(cudaMemcpyAsync, to, from, src.rows * width, cudaMemcpyDeviceToDevice, stream);
  } else {
    BW_CUDA_CALL(cudaMemcpy2DAsync, to, dst.stride * element, from, src.stride * element, width, src.rows,
                 cudaMemcpyDeviceToDevice, stream);
  }
}

// Tiles go through shared memory, so that reads run along w's rows and writes along those of the result.
__global__ void transpose_kernel(ConstFloats w, ConstInts order, Floats rows) {
  __shared__ float tile[kTile][kTile + 1];
  const size_t r0 = size_t{blockIdx.x} * kTile;
  for (size_t c0 = size_t{blockIdx.y} * kTile; c0 < rows.cols; c0 += size_t{gridDim.y} * kTile) {
    for (unsigned i = threadIdx.y; i < kTile; i += kTileRows) {
      const size_t c = c0 + i, r = r0 + threadIdx.x;
      if (r >= rows.rows) continue;
      const size_t from = order.data == nullptr ? r : static_cast<size_t>(order(r, 0));
      tile[i][threadIdx.x] = c < w.rows ? w(c, from) : 0.0f;
    }
    __syncthreads();
    for (unsigned i = threadIdx.y; i < kTile; i += kTileRows) {
      const size_t r = r0 + i, c = c0 + threadIdx.x;
      if (r < rows.rows && c < rows.cols) rows(r, c) = tile[threadIdx.x][i];
    }
    __syncthreads();
  }
}

// A block for every tile; those below the diagonal get nothing to do, those on and above it write both sides.
__global__ void symmetrize_kernel(ConstFloats h, Floats full) {
  __shared__ float tile[kTile][kTile + 1];
  const size_t n = h.rows, c0 = size_t{blockIdx.x} * kTile;
  for (size_t r0 = size_t{blockIdx.y} * kTile; r0 <= c0 && r0 < n; r0 += size_t{gridDim.y} * kTile) {
    for (unsigned i = threadIdx.y; i < kTile; i += kTileRows) {
      const size_t r = r0 + i, c = c0 + threadIdx.x;
      if (r < n && c < n && r <= c) tile[i][threadIdx.x] = full(r, c) = h(r, c);
    }
    __syncthreads();
    for (unsigned i = threadIdx.y; i < kTile; i += kTileRows) {
      const size_t r = c0 + i, c = r0 + threadIdx.x;
      if (r < n && c < n && c < r) full(r, c) = tile[threadIdx.x][i];
    }
    __syncthreads();
  }
}

dim3 tiles_of(size_t rows, size_t cols) {
  return dim3(as_grid(ceil_div(cols, kTile)), as_grid(std::min(ceil_div(rows, kTile), kMostGridY)));
}

}  // namespace

void fill(cudaStream_t stream, const Tensor& x, float value) {
  if (x.dtype == DType::kF32) fill_as(stream, x, value);
  if (x.dtype == DType::kF64) fill_as(stream, x, double{value});
  if (x.dtype == DType::kI32) fill_as(stream, x, static_cast<int32_t>(value));
}

void copy(cudaStream_t stream, const Tensor& src, const Tensor& dst) {
  if (src.empty()) return;
  if (src.dtype == dst.dtype) return copy_bits(stream, src, dst);
  if (src.dtype == DType::kF32) return convert_from<float>(stream, src, dst);
  if (src.dtype == DType::kBF16) return convert_from<BFloat16>(stream, src, dst);
  convert_from<Half>(stream, src, dst);
}

void to_bf16(cudaStream_t stream, ConstFloats x, View<BFloat16> dst) {
  for_each(stream, x.rows, x.cols, ConvertBody<float, BFloat16>{x, dst});
}

void scale_rows(cudaStream_t stream, ConstFloats x, ConstFloats factors, Floats dst) {
  for_each(stream, x.rows, x.cols, ScaleRowsBody<float>{x, factors, dst});
}

void scale_rows(cudaStream_t stream, ConstFloats x, ConstFloats factors, View<BFloat16> dst) {
  for_each(stream, x.rows, x.cols, ScaleRowsBody<BFloat16>{x, factors, dst});
}

void transpose_in_order(cudaStream_t stream, ConstFloats w, ConstInts order, Floats rows) {
  if (rows.rows == 0 || rows.cols == 0) return;
  BW_LAUNCH(transpose_kernel, tiles_of(rows.cols, rows.rows), dim3(kTile, kTileRows), 0, stream, w, order, rows);
}

void symmetrize(cudaStream_t stream, ConstFloats h, Floats full) {
  if (h.rows == 0) return;
  BW_LAUNCH(symmetrize_kernel, tiles_of(h.rows, h.rows), dim3(kTile, kTileRows), 0, stream, h, full);
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
