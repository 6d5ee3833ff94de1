// The gradient of causal attention, tile of queries by tile of keys. Blocks of queries find the softmax of their rows
// and add up dq; then blocks of keys add up dk and dv. Both compute the weights again, so that memory stays linear in
// the length, and each element of a gradient has one block that adds to it, in a fixed order.
#include "backend/cuda/kernels.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

constexpr unsigned kTile = 32;   // queries, keys, and columns of them in shared memory at a time
constexpr unsigned kGroups = 8;  // groups of kTile threads; each takes the rows of its number, kGroups apart
constexpr unsigned kEach = kTile / kGroups;  // rows of a thread
constexpr unsigned kPitch = kTile + 1;       // threads that walk along rows side by side meet different banks
constexpr unsigned kThreads = kTile * kGroups;

// Rows of queries of one sequence and KV head: position after position, of each the query heads that share the head.
struct Job {
  ConstFloats q, k, v, dout;
  Floats dq, dk, dv;
  AttentionShape shape;
  size_t length, sequences;
  // For every token and head: the largest score, 1 / Σ exp(score - top), Σ weight · (dout · value).
  Floats top, share, mean;
};

struct Place {
  size_t sequence, head, group, rows;
  __device__ Place(const Job& job, size_t of_sequence)
      : sequence(of_sequence),
        head(blockIdx.y),
        group(job.shape.n_heads / job.shape.n_kv_heads),
        rows(job.length * group) {}
  __device__ size_t token(size_t row) const { return sequence * (rows / group) + row / group; }
  __device__ size_t query_head(size_t row) const { return head * group + row % group; }
};

// Tiles in shared memory, rows kPitch apart.
struct Tiles {
  float *queries, *keys;       // kTile columns of the operands of a product
  float *weights, *to_scores;  // (queries, keys): of the softmax, and the gradient to the scores before the softcap
};

template <typename T>
__device__ T* query_row(View<T> m, const Job& job, const Place& at, size_t row) {
  return m.row(at.token(row)) + at.query_head(row) * job.shape.head_dim;
}
template <typename T>
__device__ T* key_row(View<T> m, const Job& job, const Place& at, size_t key) {
  return m.row(at.sequence * job.length + key) + at.head * job.shape.head_dim;
}

// products[i] = x · y of the thread's queries, from row `first` on, and of its key, from `key` on.
__device__ void multiply(const Job& job, const Place& at, const Tiles& t, ConstFloats x, size_t first, ConstFloats y,
                         size_t key, float (&products)[kEach]) {
  const unsigned lane = threadIdx.x % kTile, group = threadIdx.x / kTile;
  const size_t d = job.shape.head_dim;
  for (float& p : products) p = 0;
  for (size_t c0 = 0; c0 < d; c0 += kTile) {
    __syncthreads();  // the last columns have been used
    for (unsigned i = group; i < kTile; i += kGroups) {
      const bool column = c0 + lane < d;
      t.queries[i * kPitch + lane] = column && first + i < at.rows ? query_row(x, job, at, first + i)[c0 + lane] : 0.0f;
      t.keys[i * kPitch + lane] = column && key + i < job.length ? key_row(y, job, at, key + i)[c0 + lane] : 0.0f;
    }
    __syncthreads();
    const unsigned columns = static_cast<unsigned>(d - c0 < kTile ? d - c0 : kTile);
    for (unsigned c = 0; c < columns; ++c) {
      const float of_key = t.keys[lane * kPitch + c];
#pragma unroll
      for (unsigned i = 0; i < kEach; ++i) {
        products[i] = fmaf(t.queries[(group + i * kGroups) * kPitch + c], of_key, products[i]);
      }
    }
  }
}

__device__ bool visible(const Job& job, const Place& at, size_t row, size_t key) {
  const size_t position = row / at.group, window = job.shape.window;
  return row < at.rows && key <= position && (window == 0 || position - key < window);
}

// The score of a product; slope: of the softcap there.
__device__ float score_of(const Job& job, float product, float& slope) {
  const float score = product * job.shape.scale, cap = job.shape.softcap;
  const float t = cap != 0 ? tanhf(score / cap) : 0.0f;
  slope = 1.0f - t * t;
  return cap != 0 ? cap * t : score;
}

// Fills weights and to_scores of a tile.
__device__ void weigh(const Job& job, const Place& at, const Tiles& t, size_t first, size_t key) {
  const unsigned lane = threadIdx.x % kTile, group = threadIdx.x / kTile;
  float product[kEach], to_weight[kEach];
  multiply(job, at, t, job.q, first, job.k, key, product);
  multiply(job, at, t, job.dout, first, job.v, key, to_weight);
#pragma unroll
  for (unsigned i = 0; i < kEach; ++i) {
    const unsigned query = group + i * kGroups;
    const size_t row = first + query;
    float weight = 0, to_score = 0;
    if (visible(job, at, row, key + lane)) {
      const size_t token = at.token(row), head = at.query_head(row);
      float slope;
      const float score = score_of(job, product[i], slope);
      weight = expf(score - job.top(token, head)) * job.share(token, head);
      to_score = weight * (to_weight[i] - job.mean(token, head)) * slope;
    }
    t.weights[query * kPitch + lane] = weight;
    t.to_scores[query * kPitch + lane] = to_score;
  }
  __syncthreads();
}

// The softmax of a thread's row over the keys so far, relative to the largest score.
struct Running {
  float top = -INFINITY, sum = 0, weighted = 0;
  __device__ void add(float score, float value) {
    if (score == -INFINITY) return;
    if (score > top) {
      const float shrink = expf(top - score);
      sum *= shrink, weighted *= shrink;
      top = score;
    }
    const float weight = expf(score - top);
    sum += weight;
    weighted = fmaf(weight, value, weighted);
  }
};

// top, share and mean of the queries from row `first` on, over keys [begin, end).
__device__ void find_softmax(const Job& job, const Place& at, const Tiles& t, size_t first, size_t begin, size_t end) {
  const unsigned lane = threadIdx.x % kTile, group = threadIdx.x / kTile;
  Running running;
  for (size_t key = begin; key < end; key += kTile) {
    float product[kEach], to_weight[kEach];
    multiply(job, at, t, job.q, first, job.k, key, product);
    multiply(job, at, t, job.dout, first, job.v, key, to_weight);
    for (unsigned i = 0; i < kEach; ++i) {
      const unsigned query = group + i * kGroups;
      float slope;
      const float score = score_of(job, product[i], slope);
      t.weights[query * kPitch + lane] = visible(job, at, first + query, key + lane) ? score : -INFINITY;
      t.to_scores[query * kPitch + lane] = to_weight[i];
    }
    __syncthreads();
    for (unsigned k = 0; threadIdx.x < kTile && k < kTile; ++k) {
      running.add(t.weights[threadIdx.x * kPitch + k], t.to_scores[threadIdx.x * kPitch + k]);
    }
  }
  const size_t row = first + threadIdx.x;
  if (threadIdx.x < kTile && row < at.rows) {
    const size_t token = at.token(row), head = at.query_head(row);
    job.top(token, head) = running.top;
    job.share(token, head) = 1.0f / running.sum;
    job.mean(token, head) = running.weighted / running.sum;
  }
  __syncthreads();
}

// dq of the queries from row `first` on += to_scores · k, of the keys from `key` on; `begins`: = instead of +=.
__device__ void add_to_queries(const Job& job, const Place& at, const Tiles& t, size_t first, size_t key, bool begins) {
  const unsigned lane = threadIdx.x % kTile, group = threadIdx.x / kTile;
  const unsigned keys = static_cast<unsigned>(job.length - key < kTile ? job.length - key : kTile);
  for (size_t c = lane; c < job.shape.head_dim; c += kTile) {
    float sum[kEach] = {};
    for (unsigned k = 0; k < keys; ++k) {
      const float x = key_row(job.k, job, at, key + k)[c];
#pragma unroll
      for (unsigned i = 0; i < kEach; ++i) sum[i] = fmaf(t.to_scores[(group + i * kGroups) * kPitch + k], x, sum[i]);
    }
    for (unsigned i = 0; i < kEach; ++i) {
      const size_t row = first + group + i * kGroups;
      if (row >= at.rows) break;
      float& to = query_row(job.dq, job, at, row)[c];
      to = fmaf(job.shape.scale, sum[i], begins ? 0.0f : to);
    }
  }
}

// dk, dv of the keys from `key` on += to_scoresᵀ · q, weightsᵀ · dout, of the queries from row `first` on.
__device__ void add_to_keys(const Job& job, const Place& at, const Tiles& t, size_t first, size_t key, bool begins) {
  const unsigned lane = threadIdx.x % kTile, group = threadIdx.x / kTile;
  const unsigned queries = static_cast<unsigned>(at.rows - first < kTile ? at.rows - first : kTile);
  for (size_t c = lane; c < job.shape.head_dim; c += kTile) {
    float to_k[kEach] = {}, to_v[kEach] = {};
    for (unsigned j = 0; j < queries; ++j) {
      const float q = query_row(job.q, job, at, first + j)[c], dout = query_row(job.dout, job, at, first + j)[c];
#pragma unroll
      for (unsigned i = 0; i < kEach; ++i) {
        const unsigned place = j * kPitch + group + i * kGroups;
        to_k[i] = fmaf(t.to_scores[place], q, to_k[i]);
        to_v[i] = fmaf(t.weights[place], dout, to_v[i]);
      }
    }
    for (unsigned i = 0; i < kEach; ++i) {
      const size_t row = key + group + i * kGroups;
      if (row >= job.length) break;
      float &dk = key_row(job.dk, job, at, row)[c], &dv = key_row(job.dv, job, at, row)[c];
      dk = fmaf(job.shape.scale, to_k[i], begins ? 0.0f : dk);
      dv = begins ? to_v[i] : dv + to_v[i];
    }
  }
}

// Blocks: (tiles of queries, KV heads, sequences), the tiles with most keys first.
__global__ void query_gradient_kernel(Job job) {
  __shared__ float shared[4][kTile * kPitch];
  const Tiles tiles{shared[0], shared[1], shared[2], shared[3]};
  const size_t first = (gridDim.x - 1 - blockIdx.x) * size_t{kTile};
  for (size_t sequence = blockIdx.z; sequence < job.sequences; sequence += gridDim.z) {
    const Place at(job, sequence);
    const size_t last = first + kTile < at.rows ? first + kTile : at.rows, window = job.shape.window;
    const size_t oldest = first / at.group, end = (last - 1) / at.group + 1;
    const size_t begin = window != 0 && oldest >= window ? oldest - window + 1 : 0;
    find_softmax(job, at, tiles, first, begin, end);
    for (size_t key = begin; key < end; key += kTile) {
      weigh(job, at, tiles, first, key);
      add_to_queries(job, at, tiles, first, key, key == begin);
    }
  }
}

// Blocks: (tiles of keys, KV heads, sequences).
__global__ void key_gradient_kernel(Job job) {
  __shared__ float shared[4][kTile * kPitch];
  const Tiles tiles{shared[0], shared[1], shared[2], shared[3]};
  const size_t key = blockIdx.x * size_t{kTile};
  for (size_t sequence = blockIdx.z; sequence < job.sequences; sequence += gridDim.z) {
    const Place at(job, sequence);
    const size_t last = key + kTile < job.length ? key + kTile - 1 : job.length - 1, window = job.shape.window;
    // The last position that sees the last key.
    const size_t newest = window != 0 && window < job.length - last ? last + window - 1 : job.length - 1;
    const size_t begin = key * at.group, end = (newest + 1) * at.group;
    for (size_t first = begin; first < end; first += kTile) {
      weigh(job, at, tiles, first, key);
      add_to_keys(job, at, tiles, first, key, first == begin);
    }
  }
}

}  // namespace

void attention_gradient(cudaStream_t stream, Scratch& scratch, const op::AttentionGradient& op) {
  const size_t tokens = op.q.rows, heads = op.shape.n_heads;
  if (tokens == 0) return;
  const auto per_query = [&] { return Floats{scratch.take<float>(tokens * heads), tokens, heads, heads}; };
  const size_t length = tokens / op.sequences;
  Job job{floats(op.q), floats(op.k), floats(op.v), floats(op.dout), floats(op.dq), floats(op.dk), floats(op.dv),
          op.shape,     length,       op.sequences, per_query(),     per_query(),   per_query()};
  const auto grid = [&](size_t rows) {
    return dim3(as_grid(ceil_div(rows, kTile)), as_grid(op.shape.n_kv_heads),
                as_grid(std::min(op.sequences, kMostGridY)));
  };
  const dim3 queries = grid(length * (heads / op.shape.n_kv_heads)), keys = grid(length);
  BW_LAUNCH(query_gradient_kernel, queries, kThreads, 0, stream, job);
  BW_LAUNCH(key_gradient_kernel, keys, kThreads, 0, stream, job);
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
