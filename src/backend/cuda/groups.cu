// Scale search, prices and rounding of groups. Columns are independent: a block takes kColumns of them, side by side,
// with a row of threads for every candidate. Arithmetic and the order of candidates are those of the cpu device
// (cpu/group_kernel.cc), so that both choose alike.
#include <iterator>
#include <span>

#include "backend/cuda/kernels.cuh"
#include "backend/cuda/levels.cuh"
#include "backend/scale_grid.h"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

constexpr unsigned kTrials = std::size(kScaleTrials);
constexpr unsigned kThreads = 256;
constexpr size_t kMostWidths = 8;
constexpr float kWorst = 3.0e38f;

// What is tried.
struct Search {
  int bits[kMostWidths];
  float trials[kTrials];  // kScaleTrials, where kernels can read them
};

// The `rank`-th code to be tried; the first of equally good ones is taken.
__device__ unsigned code_at(unsigned rank) { return rank < 6 ? 10 + rank : 15 - rank; }

// A column of a group, elements `stride` apart.
struct Column {
  const float* data;
  size_t stride, rows;
  __device__ float operator[](size_t r) const { return data[r * stride]; }
};

__device__ float rounding_error(const Column& w, const float* weights, size_t weights_stride, float scale,
                                const Levels& levels) {
  const float inverse = inverse_of(scale);
  float sum = 0;
  for (size_t r = 0; r < w.rows; ++r) {
    const float x = w[r], e = fmaf(-levels.round(x, inverse), scale, x);
    sum = fmaf(e * e, weights[r * weights_stride], sum);
  }
  return sum;
}

// The largest |w| of the thread's column: the block's rows of threads share the rows of the group.
__device__ float column_top(const Column& w, float (&tops)[kCodes][kColumns]) {
  float top = 0;
  for (size_t r = threadIdx.y; r < w.rows; r += blockDim.y) top = fmaxf(top, fabsf(w[r]));
  tops[threadIdx.y][threadIdx.x] = top;
  __syncthreads();
  for (unsigned y = 0; y < blockDim.y; ++y) top = fmaxf(top, tops[y][threadIdx.x]);
  __syncthreads();
  return top;
}

// Groups of one size of a matrix.
struct Groups {
  ConstFloats rows, weights;
  size_t size, count, tiles;

  __device__ size_t first(size_t group) const { return group * size; }
  __device__ size_t rows_of(size_t group) const {
    return rows.rows - first(group) < size ? rows.rows - first(group) : size;
  }
  __device__ const float* weights_of(size_t group) const { return weights.row(first(group)); }
  // Past the last column: no rows.
  __device__ Column column(size_t group, size_t c) const {
    return {rows.row(first(group)) + c, rows.stride, c < rows.cols ? rows_of(group) : 0};
  }
};

Groups groups_of(ConstFloats rows, ConstFloats weights, size_t size) {
  return {rows, weights, size, ceil_div(rows.rows, size), ceil_div(rows.cols, kColumns)};
}

// tops[width][group][tile] = the largest scale that a column of the tile wants. Blocks: (groups · tiles, widths) of
// (kColumns, kTrials) threads.
__global__ void wanted_kernel(Groups g, Search search, float* tops) {
  __shared__ float shared[kCodes][kColumns];
  const size_t group = blockIdx.x / g.tiles, tile = blockIdx.x % g.tiles;
  const Column w = g.column(group, tile * kColumns + threadIdx.x);
  const Levels levels(search.bits[blockIdx.y]);
  const float unit = column_top(w, shared) * (1.0f / levels.count());
  const float own = unit * search.trials[threadIdx.y];
  shared[threadIdx.y][threadIdx.x] = rounding_error(w, g.weights_of(group), g.weights.stride, own, levels);
  __syncthreads();
  if (threadIdx.y == 0) {
    float best = 0, best_error = kWorst;
    for (unsigned trial = 0; trial < kTrials; ++trial) {
      const float error = shared[trial][threadIdx.x];
      if (error < best_error) best = unit * search.trials[trial], best_error = error;
    }
    constexpr float kLargestHalf = 65504.0f;
    shared[kTrials][threadIdx.x] = fminf(best, kLargestHalf / levels.count());
  }
  __syncthreads();
  if (threadIdx.x != 0 || threadIdx.y != 0) return;
  float top = 0;
  for (unsigned c = 0; c < kColumns; ++c) top = fmaxf(top, shared[kTrials][c]);
  tops[(blockIdx.y * g.count + group) * g.tiles + tile] = top;
}

// See scale_grid.h.
__device__ Half scale_max_for(float top) {
  constexpr uint16_t kLargest = 0x7bff;
  uint16_t bits = static_cast<uint16_t>(to_half(top));
  if (bits > kLargest) bits = kLargest;
  while (bits < kLargest && code_scale(Half(bits), kCodes - 1) < top) ++bits;
  return Half(bits);
}

struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// For the block's row of tops: scale_max[block] (or null), and scales[block][16].
__global__ void scale_grid_kernel(const float* tops, size_t tiles, Half* scale_max, float* scales) {
  __shared__ float scratch[kThreads];
  float top = 0;
  for (size_t i = threadIdx.x; i < tiles; i += blockDim.x) top = fmaxf(top, tops[blockIdx.x * tiles + i]);
  const Half chosen = scale_max_for(block_reduce(top, scratch, Larger()));
  if (threadIdx.x < kCodes) scales[size_t{blockIdx.x} * kCodes + threadIdx.x] = code_scale(chosen, threadIdx.x);
  if (threadIdx.x == 0 && scale_max != nullptr) scale_max[blockIdx.x] = chosen;
}

struct Choice {
  unsigned code;
  float error;
};

// The best of 16 scales for the thread's column. The block has a row of threads for every code.
__device__ Choice choose_code(const Column& w, const float* weights, size_t weights_stride, const float* scales,
                              const Levels& levels, float (&errors)[kCodes][kColumns]) {
  errors[threadIdx.y][threadIdx.x] = rounding_error(w, weights, weights_stride, scales[code_at(threadIdx.y)], levels);
  __syncthreads();
  Choice best{0, kWorst};
  for (unsigned rank = 0; rank < kCodes; ++rank) {
    const float error = errors[rank][threadIdx.x];
    if (error < best.error) best = {code_at(rank), error};
  }
  return best;
}

// parts[width][group][tile] = the rounding errors of the tile's columns, summed. Blocks: (groups · tiles, widths) of
// (kColumns, kCodes) threads.
__global__ void price_kernel(Groups g, Search search, const float* scales, double* parts) {
  __shared__ float errors[kCodes][kColumns], chosen[kColumns];
  const size_t group = blockIdx.x / g.tiles, tile = blockIdx.x % g.tiles, row = blockIdx.y * g.count + group;
  const size_t c = tile * kColumns + threadIdx.x;
  const Choice best = choose_code(g.column(group, c), g.weights_of(group), g.weights.stride, scales + row * kCodes,
                                  Levels(search.bits[blockIdx.y]), errors);
  if (threadIdx.y == 0) chosen[threadIdx.x] = c < g.rows.cols ? best.error : 0.0f;
  __syncthreads();
  if (threadIdx.x != 0 || threadIdx.y != 0) return;
  double sum = 0;
  for (unsigned i = 0; i < kColumns; ++i) sum += chosen[i];
  parts[row * g.tiles + tile] = sum;
}

// errors[width · sizes + size][group] = Σ parts[width][group]
struct PriceBody {
  const double* parts;
  size_t groups, tiles, sizes, size;
  View<double> errors;
  __device__ void operator()(size_t width, size_t group) const {
    double sum = 0;
    for (size_t i = 0; i < tiles; ++i) sum += parts[(width * groups + group) * tiles + i];
    errors(width * sizes + size, group) = sum;
  }
};

// What one block of round_group_kernel works at.
struct Rounding {
  Floats panel;
  ConstFloats u, weights;
  const float* scales;
  Bytes codes;
  uint8_t* scale_codes;
  Floats errors;
  int bits;
};

// Rounds row after row of the tile; the rows of threads share the rows that take the corrections. The stripe holds the
// group's columns, and afterwards the errors. Returns Σ errors² of the thread's column where threadIdx.y is 0.
__device__ float round_rows(const Rounding& op, float* stripe, size_t c, float scale) {
  const size_t n = op.codes.rows;
  const bool inside = c < op.panel.cols;
  const Levels levels(op.bits);
  const float inverse = inverse_of(scale);
  float sum = 0;
  for (size_t i = 0; i < n; ++i) {
    if (threadIdx.y == 0) {
      const float x = stripe[i * kColumns + threadIdx.x], level = levels.round(x, inverse);
      const float error = (x - round_to_half(level * scale)) * (1.0f / op.u(i, i));
      sum = fmaf(error, error, sum);
      if (inside) {
        op.codes(i, c) = static_cast<uint8_t>(level - levels.low);
        op.errors(i, c) = error;
      }
      stripe[i * kColumns + threadIdx.x] = error;
    }
    __syncthreads();
    const float error = stripe[i * kColumns + threadIdx.x];
    for (size_t j = i + 1 + threadIdx.y; j < n; j += blockDim.y) {
      float& x = stripe[j * kColumns + threadIdx.x];
      x = fmaf(-error, op.u(i, j), x);
    }
    __syncthreads();
  }
  return sum;
}

__global__ void round_group_kernel(Rounding op, double* tile_errors) {
  BW_DYNAMIC_SHARED(float, round_shared);
  __shared__ float scratch[kCodes][kColumns];
  float* const stripe = round_shared;
  const size_t n = op.codes.rows, c = size_t{blockIdx.x} * kColumns + threadIdx.x;
  const bool inside = c < op.panel.cols;
  for (size_t r = threadIdx.y; r < n; r += blockDim.y) {
    stripe[r * kColumns + threadIdx.x] = inside ? op.panel(r, c) : 0.0f;
  }
  __syncthreads();
  const Column column{stripe + threadIdx.x, kColumns, n};
  const bool zeros = column_top(column, scratch) == 0;
  const Levels levels(op.bits);
  const Choice best = choose_code(column, op.weights.data, op.weights.stride, op.scales, levels, scratch);
  const unsigned code = zeros ? 0 : best.code;
  if (threadIdx.y == 0 && inside) op.scale_codes[c] = static_cast<uint8_t>(code);
  __syncthreads();
  const float sum = round_rows(op, stripe, c, op.scales[code]);
  if (threadIdx.y == 0) scratch[0][threadIdx.x] = inside ? sum : 0.0f;
  for (size_t j = n + threadIdx.y; j < op.panel.rows && inside; j += blockDim.y) {
    float x = op.panel(j, c);
    for (size_t i = 0; i < n; ++i) x = fmaf(-stripe[i * kColumns + threadIdx.x], op.u(i, j), x);
    op.panel(j, c) = x;
  }
  __syncthreads();
  if (threadIdx.x != 0 || threadIdx.y != 0) return;
  double total = 0;
  for (unsigned i = 0; i < kColumns; ++i) total += scratch[0][i];
  tile_errors[blockIdx.x] = total;
}

Search search_for(std::span<const int> widths) {
  Search search{};
  std::copy(widths.begin(), widths.end(), search.bits);
  std::copy(std::begin(kScaleTrials), std::end(kScaleTrials), search.trials);
  return search;
}

}  // namespace

void price_groups(cudaStream_t stream, Scratch& scratch, const op::PriceGroups& op) {
  BW_CHECK(op.widths.size() <= kMostWidths);
  if (op.rows.empty() || op.widths.empty()) return;
  const Search search = search_for(op.widths);
  const size_t n_widths = op.widths.size(), smallest = *std::min_element(op.sizes.begin(), op.sizes.end());
  const Groups most = groups_of(floats(op.rows), floats(op.weights), smallest);
  auto* const tops = scratch.take<float>(n_widths * most.count * most.tiles);
  auto* const scales = scratch.take<float>(n_widths * most.count * kCodes);
  auto* const parts = scratch.take<double>(n_widths * most.count * most.tiles);
  for (size_t size = 0; size < op.sizes.size(); ++size) {
    const Groups g = groups_of(most.rows, most.weights, op.sizes[size]);
    const dim3 grid(as_grid(g.count * g.tiles), as_grid(n_widths));
    BW_LAUNCH(wanted_kernel, grid, dim3(kColumns, kTrials), 0, stream, g, search, tops);
    BW_LAUNCH(scale_grid_kernel, as_grid(n_widths * g.count), kThreads, 0, stream, tops, g.tiles, nullptr, scales);
    BW_LAUNCH(price_kernel, grid, dim3(kColumns, kCodes), 0, stream, g, search, scales, parts);
    for_each(stream, n_widths, g.count,
             PriceBody{parts, g.count, g.tiles, op.sizes.size(), size, view_of<double>(op.errors)});
  }
}

void group_scale(cudaStream_t stream, const op::GroupScale& op) {
  const Groups g = groups_of(floats(op.rows), floats(op.weights), std::max<size_t>(1, op.rows.rows));
  float* const tops = floats(op.wanted).data;
  if (g.count * g.tiles != 0) {
    BW_LAUNCH(wanted_kernel, as_grid(g.tiles), dim3(kColumns, kTrials), 0, stream, g, search_for({&op.bits, 1}), tops);
  }
  BW_LAUNCH(scale_grid_kernel, 1, kThreads, 0, stream, tops, g.count * g.tiles, view_of<Half>(op.scale_max).data,
            floats(op.code_scales).data);
}

void round_group(cudaStream_t stream, Scratch& scratch, const op::RoundGroup& op) {
  const size_t n = op.codes.rows, tiles = ceil_div(op.panel.cols, kColumns);
  if (tiles == 0) return;
  const Rounding rounding{floats(op.panel),           floats(op.u),
                          floats(op.weights),         floats(op.code_scales).data,
                          view_of<uint8_t>(op.codes), view_of<uint8_t>(op.scale_codes).data,
                          floats(op.errors),          op.bits};
  auto* const tile_errors = scratch.take<double>(tiles);
  BW_LAUNCH(round_group_kernel, as_grid(tiles), dim3(kColumns, kCodes), n * kColumns * sizeof(float), stream, rounding,
            tile_errors);
  add_up(stream, tile_errors, tiles, view_of<double>(op.error).data);
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
