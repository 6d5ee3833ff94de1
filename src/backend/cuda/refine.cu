// Coordinate descent over the codes of a group. Columns are independent; the rows of threads of a block share the later
// rows, which take what a change does to the gradient. Arithmetic is that of the cpu device (cpu/group_kernel.cc), so
// that both choose alike.
#include "backend/cuda/kernels.cuh"
#include "backend/cuda/levels.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

static_assert(kColumns == kColumnStep);  // so no column of a block lies outside

// What one block of refine_group_kernel works at.
struct Refining {
  ConstFloats gradient, h;
  const Half* scale_max;
  const uint8_t* scale_codes;
  int bits;
  Bytes codes;
  Floats error;
};

// A column's scale, and by how much its error fell.
struct Descent {
  Levels levels;
  float scale, inverse, gained = 0;
  __device__ Descent(int bits, float s) : levels(bits), scale(s), inverse(inverse_of(s)) {}

  // The change of the value at `code` that lowers the error most, 0 if none does; code follows.
  __device__ float change(float gradient, float curvature, uint8_t& code) {
    const float value = round_to_half((static_cast<float>(code) + levels.low) * scale);
    const float next = levels.round(fmaf(gradient, 1.0f / curvature, value), inverse);
    const float d = round_to_half(next * scale) - value;
    const float gain = d * fmaf(-d, curvature, gradient + gradient);
    if (!(gain > 0)) return 0;
    code = static_cast<uint8_t>(next - levels.low);
    gained += gain;
    return d;
  }
};

// Row after row of the tile. The stripe holds the gradient's columns, and afterwards the changes. Threads of row 0
// choose a row's changes, and feed them to the row that they choose next; so one barrier for each row is enough.
__device__ void descend(ConstFloats h, float* stripe, uint8_t* codes, Descent& column) {
  for (size_t i = 0; i < h.rows; ++i) {
    float& own = stripe[i * kColumns + threadIdx.x];
    if (threadIdx.y == 0) own = column.change(own, h(i, i), codes[i * kColumns + threadIdx.x]);
    __syncthreads();
    const float change = own;
    if (change != 0) {
      for (size_t j = i + 1 + threadIdx.y; j < h.rows; j += blockDim.y) {
        float& x = stripe[j * kColumns + threadIdx.x];
        x = fmaf(-change, h(i, j), x);
      }
    }
  }
}

// tile_changes[tile] = the change of the tile's error. Blocks of (kColumns, kCodes) threads.
__global__ void refine_group_kernel(Refining op, double* tile_changes) {
  BW_DYNAMIC_SHARED(float, refine_shared);
  __shared__ float gains[kColumns];
  const size_t n = op.h.rows, c = size_t{blockIdx.x} * kColumns + threadIdx.x;
  float* const stripe = refine_shared;
  auto* const codes = reinterpret_cast<uint8_t*>(stripe + n * kColumns);
  for (size_t r = threadIdx.y; r < n; r += blockDim.y) {
    stripe[r * kColumns + threadIdx.x] = op.gradient(r, c);
    codes[r * kColumns + threadIdx.x] = op.codes(r, c);
  }
  __syncthreads();
  Descent column(op.bits, code_scale(*op.scale_max, op.scale_codes[c]));
  descend(op.h, stripe, codes, column);
  for (size_t r = threadIdx.y; r < n; r += blockDim.y) {
    const float change = stripe[r * kColumns + threadIdx.x];
    if (change == 0) continue;
    op.codes(r, c) = codes[r * kColumns + threadIdx.x];
    op.error(r, c) -= change;
  }
  if (threadIdx.y == 0) gains[threadIdx.x] = column.gained;
  __syncthreads();
  if (threadIdx.x != 0 || threadIdx.y != 0) return;
  double total = 0;
  for (unsigned i = 0; i < kColumns; ++i) total += gains[i];
  tile_changes[blockIdx.x] = -total;
}

}  // namespace

void refine_group(cudaStream_t stream, Scratch& scratch, const op::RefineGroup& op) {
  const size_t n = op.h.rows, tiles = op.codes.cols / kColumns;
  if (n == 0 || tiles == 0) return;
  const Refining refining{floats(op.gradient),
                          floats(op.h),
                          view_of<const Half>(op.scale_max).data,
                          view_of<const uint8_t>(op.scale_codes).data,
                          op.bits,
                          view_of<uint8_t>(op.codes),
                          floats(op.error)};
  auto* const tile_changes = scratch.take<double>(tiles);
  BW_LAUNCH(refine_group_kernel, as_grid(tiles), dim3(kColumns, kCodes),
            n * kColumns * (sizeof(float) + sizeof(uint8_t)), stream, refining, tile_changes);
  add_up(stream, tile_changes, tiles, view_of<double>(op.sum).data);
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
