#include "backend/cuda/gemm.cuh"

#include <bit>

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // what cuBLAS recommends for the largest GPUs
// Rows of x that are converted at a time hold so many elements, which bounds the copy.
constexpr size_t kChunkElements = size_t{1} << 26;
constexpr size_t kGramTokens = 4096;  // tokens of a gram product that are summed at once
constexpr size_t kGramBlock = 512;    // rows of the gram matrix of one product: the part below the diagonal is waste
constexpr size_t kMostPlans = 4096;

// Rows of bfloat16 begin at multiples of 16 bytes, which tensor cores want.
size_t bf16_stride(size_t cols) { return (cols + 7) / 8 * 8; }

size_t alignment_of(const void* p) {
  constexpr uintptr_t kMost = 256;
  return size_t{1} << std::countr_zero(reinterpret_cast<uintptr_t>(p) | kMost);
}

template <typename T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  BW_CUDA_CALL(cublasLtMatmulDescSetAttribute, desc, attribute, &value, sizeof(value));
}

template <typename T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  BW_CUDA_CALL(cublasLtMatmulPreferenceSetAttribute, preference, attribute, &value, sizeof(value));
}

}  // namespace

// cuBLAS takes matrices by columns. Row-major c = a · b is, read by columns, cᵀ = bᵀ · aᵀ: b comes first.
class Gemm::Plan {
 public:
  Plan(cublasLtHandle_t handle, const Product& p) {
    const size_t m = p.c.rows, n = p.c.cols, k = p.k;
    const cudaDataType_t type = p.bf16 ? CUDA_R_16BF : CUDA_R_32F;
    BW_CUDA_CALL(cublasLtMatmulDescCreate, &desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(desc_, CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    const size_t b_rows = p.b.transposed ? k : n, a_rows = p.a.transposed ? m : k;
    BW_CUDA_CALL(cublasLtMatrixLayoutCreate, &b_, type, b_rows, n + k - b_rows, static_cast<int64_t>(p.b.stride));
    BW_CUDA_CALL(cublasLtMatrixLayoutCreate, &a_, type, a_rows, m + k - a_rows, static_cast<int64_t>(p.a.stride));
    BW_CUDA_CALL(cublasLtMatrixLayoutCreate, &c_, CUDA_R_32F, n, m, static_cast<int64_t>(p.c.stride));
    choose(handle, p);
  }
  ~Plan() {
    if (a_) cublasLtMatrixLayoutDestroy(a_);
    if (b_) cublasLtMatrixLayoutDestroy(b_);
    if (c_) cublasLtMatrixLayoutDestroy(c_);
    if (desc_) cublasLtMatmulDescDestroy(desc_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void run(cublasLtHandle_t handle, const Product& p, void* workspace, cudaStream_t stream) const {
    BW_CUDA_CALL(cublasLtMatmul, handle, desc_, &p.alpha, p.b.data, b_, p.a.data, a_, &p.beta, p.c.data, c_, p.c.data,
                 c_, &algorithm_, workspace, kWorkspaceBytes, stream);
  }

 private:
  void choose(cublasLtHandle_t handle, const Product& p) {
    cublasLtMatmulPreference_t preference;
    BW_CUDA_CALL(cublasLtMatmulPreferenceCreate, &preference);
    const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, decltype(&cublasLtMatmulPreferenceDestroy)> owner(
        preference, &cublasLtMatmulPreferenceDestroy);
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
    // Parts of a split sum are added in a step of their own, in a fixed order.
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE});
    const auto c_alignment = static_cast<uint32_t>(alignment_of(p.c.data));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(alignment_of(p.b.data)));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(alignment_of(p.a.data)));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c_alignment);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c_alignment);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    BW_CUDA_CALL(cublasLtMatmulAlgoGetHeuristic, handle, desc_, b_, a_, c_, c_, preference, 1, &best, &found);
    if (found == 0) throw CudaFailure{"cublasLtMatmulAlgoGetHeuristic: no algorithm for this product"};
    algorithm_ = best.algo;
  }

  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

DeviceWeight::DeviceWeight(size_t out, size_t in, bool bf16, const Allocate& allocate) : Weight(out, in) {
  const size_t stride = bf16 ? bf16_stride(in) : in;
  data_ = allocate(out, stride, bf16 ? DType::kBF16 : DType::kF32).cols_slice(0, in);
}

Gemm::Gemm(Device& device, const Allocate& allocate) : allocate_(allocate), stream_(device.stream(Queue::kCompute)) {
  BW_CUDA_CALL(cublasLtCreate, &handle_);
  BW_CUDA_CALL(cudaMallocAsync, &workspace_, kWorkspaceBytes, stream_);
}

Gemm::~Gemm() {
  plans_.clear();
  cudaFreeAsync(workspace_, stream_);
  cublasLtDestroy(handle_);
}

const Gemm::Plan& Gemm::plan_for(const Product& p) {
  const size_t kinds = size_t{p.bf16} * 4 + size_t{p.a.transposed} * 2 + size_t{p.b.transposed};
  const Key key{kinds,
                p.c.rows,
                p.c.cols,
                p.k,
                p.a.stride,
                p.b.stride,
                p.c.stride,
                alignment_of(p.a.data),
                alignment_of(p.b.data),
                alignment_of(p.c.data)};
  if (plans_.size() >= kMostPlans) plans_.clear();
  std::unique_ptr<Plan>& plan = plans_[key];
  if (!plan) plan = std::make_unique<Plan>(handle_, p);
  return *plan;
}

void Gemm::multiply(const Product& p) { plan_for(p).run(handle_, p, workspace_, stream_); }

View<BFloat16> Gemm::bf16_room(Scratch& scratch, size_t rows, size_t cols) const {
  const size_t stride = bf16_stride(cols);
  return {scratch.take<BFloat16>(rows * stride), rows, cols, stride};
}

void Gemm::linear(const op::Linear& op) {
  const auto* w = dynamic_cast<const DeviceWeight*>(op.w.get());
  BW_CHECK(w != nullptr);
  const ConstFloats x = floats(op.x);
  const Floats y = floats(op.y);
  if (y.rows == 0 || y.cols == 0) return;
  const bool bias = op.bias.memory != nullptr;
  if (bias) add_row(stream_, floats(op.bias), op.accumulate, y);
  const float beta = bias || op.accumulate ? 1.0f : 0.0f;
  const Operand right{view_of<std::byte>(w->data()).data, w->data().stride, true};
  if (!w->bf16()) return multiply({{x.data, x.stride, false}, right, false, y, w->in(), 1.0f, beta});
  const size_t rows = std::min(x.rows, std::max<size_t>(1, kChunkElements / w->in()));
  Scratch scratch(allocate_);
  const View<BFloat16> room = bf16_room(scratch, rows, w->in());
  for (size_t first = 0; first < x.rows; first += rows) {
    const size_t count = std::min(rows, x.rows - first);
    to_bf16(stream_, x.rows_slice(first, count), room.rows_slice(0, count));
    multiply({{room.data, room.stride, false}, right, true, y.rows_slice(first, count), w->in(), 1.0f, beta});
  }
}

void Gemm::gemm(const op::Gemm& op) {
  const ConstFloats a = floats(op.a), b = floats(op.b);
  const Floats c = floats(op.c);
  if (c.rows == 0 || c.cols == 0) return;
  const size_t k = op.transpose_a ? a.rows : a.cols;
  if (k == 0) return op.beta == 0 ? fill(stream_, op.c, 0.0f) : scale(stream_, c, op.beta);
  if (op.precision == Precision::kF32) {
    return multiply(
        {{a.data, a.stride, op.transpose_a}, {b.data, b.stride, op.transpose_b}, false, c, k, op.alpha, op.beta});
  }
  Scratch scratch(allocate_);
  const View<BFloat16> a16 = bf16_room(scratch, a.rows, a.cols), b16 = bf16_room(scratch, b.rows, b.cols);
  to_bf16(stream_, a, a16);
  to_bf16(stream_, b, b16);
  multiply(
      {{a16.data, a16.stride, op.transpose_a}, {b16.data, b16.stride, op.transpose_b}, true, c, k, op.alpha, op.beta});
}

// Chunk after chunk of tokens, h's rows in blocks: h[i0:, i0:] += left[:, i0:]ᵀ · right[:, i0:].
void Gemm::accumulate_gram(const op::AccumulateGram& op) {
  const ConstFloats x = floats(op.x), weight = floats(op.weight);
  const Floats h = floats(op.h);
  const size_t n = x.cols, room = std::min(x.rows, kGramTokens);
  if (x.rows == 0 || n == 0) return;
  const bool bf16 = op.precision != Precision::kF32, weighted = op.weight.memory != nullptr;
  Scratch scratch(allocate_);
  const View<BFloat16> left16 = bf16 ? bf16_room(scratch, room, n) : View<BFloat16>();
  const View<BFloat16> right16 = bf16 && weighted ? bf16_room(scratch, room, n) : left16;
  const Floats scaled{!bf16 && weighted ? scratch.take<float>(room * n) : nullptr, room, n, n};
  for (size_t first = 0; first < x.rows; first += kGramTokens) {
    const size_t tokens = std::min(kGramTokens, x.rows - first);
    const ConstFloats chunk = x.rows_slice(first, tokens);
    if (bf16) to_bf16(stream_, chunk, left16);
    if (weighted && bf16) scale_rows(stream_, chunk, weight.rows_slice(first, tokens), right16);
    if (weighted && !bf16) scale_rows(stream_, chunk, weight.rows_slice(first, tokens), scaled);
    const ConstFloats right = weighted ? scaled : chunk;
    for (size_t i = 0; i < n; i += kGramBlock) {
      const size_t rows = std::min(kGramBlock, n - i);
      const Floats part = h.rows_slice(i, rows).cols_slice(i, n - i);
      const Operand a = bf16 ? Operand{left16.data + i, left16.stride, true} : Operand{chunk.data + i, x.stride, true};
      const Operand b =
          bf16 ? Operand{right16.data + i, right16.stride, false} : Operand{right.data + i, right.stride, false};
      multiply({a, b, bf16, part, tokens, 1.0f, 1.0f});
    }
  }
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
