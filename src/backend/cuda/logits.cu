// Log-probabilities of rows of logits, a block for every row. Exponentials are floats, sums of them doubles.
#include "backend/cuda/kernels.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

constexpr unsigned kThreads = 256;

// A logit and where it stands.
struct Top {
  float value;
  uint32_t at;
};

// The larger, of equal ones the first.
struct Larger {
  __device__ Top operator()(Top a, Top b) const {
    const bool second = b.value > a.value || (b.value == a.value && b.at < a.at);
    return second ? b : a;
  }
};

__device__ Top largest(const float* x, size_t n, Top* scratch) {
  Top top{-INFINITY, 0xffffffffu};
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) top = Larger()(top, Top{x[i], static_cast<uint32_t>(i)});
  return block_reduce(top, scratch, Larger());
}

// Σ exp(x - maximum)
__device__ double sum_exp(const float* x, size_t n, float maximum, double* scratch) {
  double sum = 0;
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) sum += expf(x[i] - maximum);
  return block_sum(sum, scratch);
}

// Σ exp(p - maximum) · (p - q - shift), over the tokens that p gives a chance. The shift keeps the terms small, so that
// little is lost in their sum.
__device__ double weighted_difference(const float* p, const float* q, size_t n, float maximum, float shift,
                                      double* scratch) {
  double sum = 0;
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
    const float weight = expf(p[i] - maximum);
    if (weight != 0) sum += weight * (p[i] - q[i] - shift);
  }
  return block_sum(sum, scratch);
}

// log_sum - x[target]
__device__ float nll_of(double log_sum, const float* x, size_t n, int32_t target) {
  const bool known = target >= 0 && static_cast<size_t>(target) < n;
  return known ? static_cast<float>(log_sum - x[target]) : nanf("");
}

__global__ void token_nll_kernel(ConstFloats logits, ConstInts targets, Floats nll) {
  __shared__ Top tops[kThreads];
  __shared__ double sums[kThreads];
  const size_t r = blockIdx.x, n = logits.cols;
  const float* const x = logits.row(r);
  const float maximum = largest(x, n, tops).value;
  const double log_sum = maximum + log(sum_exp(x, n, maximum, sums));
  if (threadIdx.x == 0) nll(r, 0) = nll_of(log_sum, x, n, targets(r, 0));
}

__global__ void compare_logits_kernel(ConstFloats p_logits, ConstFloats q_logits, ConstInts targets, Floats out) {
  __shared__ Top tops[kThreads];
  __shared__ double sums[kThreads];
  const size_t r = blockIdx.x, n = p_logits.cols;
  const float *const p = p_logits.row(r), *const q = q_logits.row(r);
  const Top p_top = largest(p, n, tops), q_top = largest(q, n, tops);
  const double p_sum = sum_exp(p, n, p_top.value, sums), q_sum = sum_exp(q, n, q_top.value, sums);
  const double p_log = p_top.value + log(p_sum), q_log = q_top.value + log(q_sum);
  const float shift = static_cast<float>(p_log - q_log);
  const double mean = weighted_difference(p, q, n, p_top.value, shift, sums) / p_sum;
  if (threadIdx.x != 0) return;
  const double kld = mean + shift - (p_log - q_log);
  out(r, 0) = static_cast<float>(kld < 0 ? 0.0 : kld);  // rounding may lead below 0; NaN stays
  out(r, 1) = nll_of(p_log, p, n, targets(r, 0));
  out(r, 2) = nll_of(q_log, q, n, targets(r, 0));
  out(r, 3) = p_top.at == q_top.at ? 1.0f : 0.0f;
}

// The first token at which Σ exp(x - maximum) exceeds `wanted`, else the last that has a chance, else n. Each thread
// has summed `part` neighbouring tokens into its place of sums; by one thread.
__device__ size_t draw(const float* x, size_t n, float maximum, const double* sums, size_t part, double wanted) {
  double before = 0, sum = 0;  // before: up to the part
  unsigned at = blockDim.x;    // the part, or so far the last that has a chance
  for (unsigned i = 0; i < blockDim.x && !(sum > wanted); ++i) {
    if (sums[i] > 0) at = i, before = sum;
    sum += sums[i];
  }
  if (at == blockDim.x) return n;
  sum = before;
  const size_t begin = at * part, end = begin + part < n ? begin + part : n;
  size_t drawn = n;  // so far the last that has a chance
  for (size_t i = begin; i < end; ++i) {
    const float weight = expf(x[i] - maximum);
    sum += weight;
    if (weight > 0) drawn = i;
    if (sum > wanted) break;
  }
  return drawn;
}

__global__ void sampled_gradient_kernel(Floats logits, ConstFloats uniforms, float softcap) {
  __shared__ Top tops[kThreads];
  __shared__ double sums[kThreads];
  __shared__ double total;
  __shared__ size_t drawn;
  const size_t r = blockIdx.x, n = logits.cols, part = ceil_div(n, size_t{blockDim.x});
  float* const x = logits.row(r);
  const float maximum = largest(x, n, tops).value;
  double sum = 0;
  const size_t begin = threadIdx.x * part, end = begin + part < n ? begin + part : n;
  for (size_t i = begin; i < end; ++i) sum += expf(x[i] - maximum);
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    double all = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) all += sums[i];
    total = all;
    drawn = draw(x, n, maximum, sums, part, uniforms(r, 0) * all);
  }
  __syncthreads();
  const float factor = static_cast<float>(1.0 / total);
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
    const float t = softcap != 0 ? x[i] / softcap : 0.0f;
    x[i] = (expf(x[i] - maximum) * factor - (i == drawn ? 1.0f : 0.0f)) * (1.0f - t * t);
  }
}

}  // namespace

void token_nll(cudaStream_t stream, ConstFloats logits, ConstInts targets, Floats nll) {
  if (logits.rows == 0) return;
  BW_LAUNCH(token_nll_kernel, as_grid(logits.rows), kThreads, 0, stream, logits, targets, nll);
}

void compare_logits(cudaStream_t stream, ConstFloats p, ConstFloats q, ConstInts targets, Floats out) {
  if (p.rows == 0) return;
  BW_LAUNCH(compare_logits_kernel, as_grid(p.rows), kThreads, 0, stream, p, q, targets, out);
}

void sampled_gradient(cudaStream_t stream, Floats logits, ConstFloats uniforms, float softcap) {
  if (logits.rows == 0) return;
  BW_LAUNCH(sampled_gradient_kernel, as_grid(logits.rows), kThreads, 0, stream, logits, uniforms, softcap);
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
