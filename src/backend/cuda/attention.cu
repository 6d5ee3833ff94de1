// Causal attention with a running softmax (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018;
// Dao et al., "FlashAttention", 2022). A block takes a tile of queries that share a KV head and passes over the keys
// that they see, tile by tile.
#include "backend/cuda/kernels.cuh"

#include "bitwright/error.h"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

constexpr unsigned kLanes = 32;  // threads side by side: keys of a tile, then columns of the output
constexpr unsigned kGroups = 4;  // groups of kLanes threads; each takes the queries of its number, kGroups apart
constexpr unsigned kKeys = kLanes;
constexpr unsigned kPitch = kKeys + 1;     // of scores: threads that walk along rows side by side meet different banks
constexpr unsigned kChunk = 32;            // columns of the keys in shared memory at a time
constexpr size_t kSharedBytes = 48 << 10;  // that every device gives without being asked

// Rows of queries of one sequence and KV head: position after position, of each the query heads that share the head.
struct AttentionJob {
  ConstFloats q, k, v;
  Floats out;
  AttentionShape shape;
  size_t positions;       // with queries, in each sequence
  size_t first_position;  // of the first query
  size_t keys_apart;      // rows of k and v from one sequence to the next
};

// Shared memory of a block of `queries`.
struct Tile {
  float *q, *out;             // (queries, head_dim)
  float* keys;                // (kKeys, kChunk + 1)
  float* scores;              // (queries, kKeys), rows kPitch apart
  float *top, *sum, *shrink;  // (queries)
};

constexpr size_t tile_floats(size_t queries, size_t head_dim) {
  return 2 * queries * head_dim + kKeys * (kChunk + 1) + queries * kPitch + 3 * queries;
}

__device__ Tile tile_in(float* shared, unsigned queries, size_t head_dim) {
  Tile t;
  t.q = shared;
  t.out = t.q + queries * head_dim;
  t.keys = t.out + queries * head_dim;
  t.scores = t.keys + kKeys * (kChunk + 1);
  t.top = t.scores + queries * kPitch;
  t.sum = t.top + queries;
  t.shrink = t.sum + queries;
  return t;
}

// What a block works at. Query i of its tile is row `first + i` of the job's rows of queries.
struct Place {
  size_t sequence, head, first, group;
  __device__ size_t row(unsigned i) const { return first + i; }
};

__device__ bool visible(const AttentionJob& job, const Place& at, unsigned query, size_t key) {
  const size_t row = at.row(query), position = job.first_position + row / at.group;
  return row < job.positions * at.group && key <= position &&
         (job.shape.window == 0 || key + job.shape.window > position);
}

// Element (query, column) of q or out.
template <typename T>
__device__ T& query_at(View<T> m, const AttentionJob& job, const Place& at, unsigned query, size_t column) {
  const size_t row = at.row(query);
  const size_t head = at.head * at.group + row % at.group;
  return m(at.sequence * job.positions + row / at.group, head * job.shape.head_dim + column);
}

// scores = q · k of the tile's queries and of the keys from `key` on, -inf where they are not visible. Each thread
// holds one key and kQueries queries.
template <unsigned kQueries>
__device__ void score_keys(const AttentionJob& job, const Place& at, const Tile& t, size_t key, size_t key_end) {
  const unsigned lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  const size_t d = job.shape.head_dim;
  float score[kQueries] = {};
  for (size_t c0 = 0; c0 < d; c0 += kChunk) {
    __syncthreads();  // the last chunk has been used
    for (unsigned k = group; k < kKeys; k += kGroups) {
      const bool inside = key + k < key_end && c0 + lane < d;
      t.keys[k * (kChunk + 1) + lane] =
          inside ? job.k(at.sequence * job.keys_apart + key + k, at.head * d + c0 + lane) : 0.0f;
    }
    __syncthreads();
    const unsigned columns = static_cast<unsigned>(d - c0 < kChunk ? d - c0 : kChunk);
    for (unsigned c = 0; c < columns; ++c) {
      const float x = t.keys[lane * (kChunk + 1) + c];
#pragma unroll
      for (unsigned i = 0; i < kQueries; ++i) score[i] = fmaf(t.q[(group + i * kGroups) * d + c0 + c], x, score[i]);
    }
  }
  const float cap = job.shape.softcap;
#pragma unroll
  for (unsigned i = 0; i < kQueries; ++i) {
    const unsigned query = group + i * kGroups;
    const float s = cap != 0 ? cap * tanhf(score[i] / cap) : score[i];
    t.scores[query * kPitch + lane] = visible(job, at, query, key + lane) ? s : -INFINITY;
  }
  __syncthreads();
}

// Scores become weights relative to the running maximum; the sums so far are put on the new scale.
__device__ void weigh_keys(const Tile& t, unsigned queries) {
  for (unsigned i = threadIdx.x; i < queries; i += blockDim.x) {
    const float before = t.top[i];
    float now = before;
    for (unsigned k = 0; k < kKeys; ++k) now = fmaxf(now, t.scores[i * kPitch + k]);
    t.top[i] = now;
    t.shrink[i] = before == now ? 1.0f : expf(before - now);  // both -inf: no key has been visible yet
  }
  __syncthreads();
  for (unsigned j = threadIdx.x; j < queries * kKeys; j += blockDim.x) {
    float& s = t.scores[j / kKeys * kPitch + j % kKeys];
    s = s == -INFINITY ? 0.0f : expf(s - t.top[j / kKeys]);
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < queries; i += blockDim.x) {
    float sum = t.sum[i] * t.shrink[i];
    for (unsigned k = 0; k < kKeys; ++k) sum += t.scores[i * kPitch + k];
    t.sum[i] = sum;
  }
}

// out = out · shrink + weights · v. Each thread holds kQueries queries of one column, which is its own throughout.
template <unsigned kQueries>
__device__ void add_values(const AttentionJob& job, const Place& at, const Tile& t, size_t key, size_t key_end) {
  const unsigned lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  const size_t d = job.shape.head_dim;
  const unsigned keys = static_cast<unsigned>(key_end - key < kKeys ? key_end - key : kKeys);
  const float* const values = job.v.row(at.sequence * job.keys_apart + key) + at.head * d;
  for (size_t c = lane; c < d; c += kLanes) {
    float sum[kQueries] = {};
    for (unsigned k = 0; k < keys; ++k) {
      const float x = values[k * job.v.stride + c];
#pragma unroll
      for (unsigned i = 0; i < kQueries; ++i) sum[i] = fmaf(t.scores[(group + i * kGroups) * kPitch + k], x, sum[i]);
    }
#pragma unroll
    for (unsigned i = 0; i < kQueries; ++i) {
      const unsigned query = group + i * kGroups;
      t.out[query * d + c] = fmaf(t.out[query * d + c], t.shrink[query], sum[i]);
    }
  }
}

// Blocks: (tiles of queries, KV heads, sequences), the tiles with most keys first.
template <unsigned kQueries>
__global__ void attention_kernel(AttentionJob job, size_t sequences) {
  BW_DYNAMIC_SHARED(float, attention_shared);
  constexpr unsigned queries = kQueries * kGroups;
  const unsigned lane = threadIdx.x % kLanes, first_query = threadIdx.x / kLanes;
  const size_t d = job.shape.head_dim, group = job.shape.n_heads / job.shape.n_kv_heads;
  const size_t rows = job.positions * group, first = (gridDim.x - 1 - blockIdx.x) * size_t{queries};
  const Tile t = tile_in(attention_shared, queries, d);
  for (size_t sequence = blockIdx.z; sequence < sequences; sequence += gridDim.z) {
    const Place at{sequence, blockIdx.y, first, group};
    for (unsigned i = first_query; i < queries; i += kGroups) {
      for (size_t c = lane; c < d; c += kLanes) {
        t.q[i * d + c] = at.row(i) < rows ? query_at(job.q, job, at, i, c) * job.shape.scale : 0.0f;
        t.out[i * d + c] = 0;
      }
      if (lane == 0) t.top[i] = -INFINITY, t.sum[i] = 0;
    }
    const size_t last = first + queries < rows ? first + queries : rows;
    const size_t oldest = job.first_position + first / group, end = job.first_position + (last - 1) / group + 1;
    const size_t window = job.shape.window;
    const size_t begin = window != 0 && oldest >= window ? oldest - window + 1 : 0;
    for (size_t key = begin; key < end; key += kKeys) {
      score_keys<kQueries>(job, at, t, key, end);
      weigh_keys(t, queries);
      add_values<kQueries>(job, at, t, key, end);
      __syncthreads();
    }
    for (unsigned i = first_query; i < queries && at.row(i) < rows; i += kGroups) {
      for (size_t c = lane; c < d; c += kLanes) query_at(job.out, job, at, i, c) = t.out[i * d + c] / t.sum[i];
    }
    __syncthreads();
  }
}

template <unsigned kQueries>
void launch(cudaStream_t stream, const AttentionJob& job, size_t sequences) {
  constexpr size_t queries = kQueries * kGroups;
  const size_t rows = job.positions * (job.shape.n_heads / job.shape.n_kv_heads);
  const dim3 grid(as_grid(ceil_div(rows, queries)), as_grid(job.shape.n_kv_heads),
                  as_grid(std::min(sequences, kMostGridY)));
  const size_t shared = tile_floats(queries, job.shape.head_dim) * sizeof(float);
  BW_LAUNCH((attention_kernel<kQueries>), grid, kLanes * kGroups, shared, stream, job, sequences);
}

// As many queries to a tile as shared memory has room for, but no more than there are.
void run(cudaStream_t stream, const AttentionJob& job, size_t sequences) {
  const size_t rows = job.positions * (job.shape.n_heads / job.shape.n_kv_heads);
  if (sequences == 0 || rows == 0) return;
  const auto suits = [&](size_t queries) {
    const bool fits = tile_floats(queries * kGroups, job.shape.head_dim) * sizeof(float) <= kSharedBytes;
    return fits && (queries == 1 || rows > queries * kGroups / 2);
  };
  if (suits(8)) return launch<8>(stream, job, sequences);
  if (suits(4)) return launch<4>(stream, job, sequences);
  if (suits(2)) return launch<2>(stream, job, sequences);
  if (suits(1)) return launch<1>(stream, job, sequences);
  throw Error(ErrorCode::kModel,
              "device cuda: heads of " + std::to_string(job.shape.head_dim) + " columns are wider than it can take",
              "run with --device cpu");
}

}  // namespace

void attention(cudaStream_t stream, const op::Attention& op) {
  if (op.sequences == 0) return;
  const size_t length = op.q.rows / op.sequences;
  run(stream, {floats(op.q), floats(op.k), floats(op.v), floats(op.out), op.shape, length, 0, length}, op.sequences);
}

void attention_cached(cudaStream_t stream, const op::AttentionCached& op) {
  run(stream,
      {floats(op.q), floats(op.k_cache), floats(op.v_cache), floats(op.out), op.shape, 1, op.length - 1, op.capacity},
      op.q.rows);
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
