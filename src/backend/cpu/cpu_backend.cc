// Checks of arguments and shapes; the work is done by the free functions of ops.h and gemm.h.
#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "hwy/targets.h"

namespace bw::backend {
namespace cpu {
namespace {

// A view of a tensor, which must hold elements of type T and lie inside its memory.
template <typename T, DType kType>
MatrixView<T> view_as(const Tensor& t) {
  BW_CHECK(t.dtype == kType);
  if (t.empty()) return {nullptr, t.rows, t.cols, t.stride};
  BW_CHECK(t.memory && (t.rows == 1 || t.stride >= t.cols));
  BW_CHECK(t.offset_bytes + ((t.rows - 1) * t.stride + t.cols) * sizeof(T) <= t.memory->bytes());
  auto* base = static_cast<std::byte*>(t.memory->device_pointer()) + t.offset_bytes;
  return {reinterpret_cast<T*>(base), t.rows, t.cols, t.stride};
}

View floats(const Tensor& t) { return view_as<float, DType::kF32>(t); }
View floats(const Tensor& t, size_t rows, size_t cols) {
  BW_CHECK(t.rows == rows && t.cols == cols);
  return floats(t);
}
ConstIndexView indices(const Tensor& t, size_t rows) {
  BW_CHECK(t.rows == rows && t.cols == 1);
  return view_as<const int32_t, DType::kI32>(t);
}
MatrixView<BFloat16> bf16s(const Tensor& t) { return view_as<BFloat16, DType::kBF16>(t); }
MatrixView<Half> halves(const Tensor& t) { return view_as<Half, DType::kF16>(t); }

void check_heads(const AttentionShape& s) {
  BW_CHECK(s.head_dim > 0 && s.n_kv_heads > 0 && s.n_heads > 0 && s.n_heads % s.n_kv_heads == 0);
}

// Keys that the queries of one row of `length` see, together.
double visible_keys(size_t length, size_t window) {
  const double n = static_cast<double>(length);
  if (window == 0 || window >= length) return n * (n + 1) / 2;
  const double w = static_cast<double>(window);
  return w * (w + 1) / 2 + (n - w) * w;
}

// Counts a matrix product, and the time until the end of the scope.
class CountedProduct {
 public:
  CountedProduct(Counters& counters, double flops) : counters_(counters) {
    ++counters_.launches;
    counters_.gemm_flops += flops;
    counters_.linear_flops += flops;
  }
  ~CountedProduct() { counters_.linear_seconds += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  CountedProduct(const CountedProduct&) = delete;
  CountedProduct& operator=(const CountedProduct&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  Counters& counters_;
  Clock::time_point begin_ = Clock::now();
};

double product_flops(size_t m, size_t n, size_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

}  // namespace

CpuBackend::CpuBackend(size_t threads, bool bf16_hardware)
    : bf16_hardware_(bf16_hardware), pool_(threads), gemm_(pool_, *blocks_) {
  // Highway would choose at the first call, once for each pointer taken before: slow, since virtual machines trap
  // CPUID.
  if (!hwy::GetChosenTarget().IsInitialized()) hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

Operands CpuBackend::operands_of(Precision p) const {
  if (p == Precision::kF32) return Operands::kF32;
  if (bf16_hardware_) return Operands::kBF16;
  return p == Precision::kAuto ? Operands::kF32 : Operands::kRoundedF32;
}

// Memory and copies

Tensor CpuBackend::allocate(size_t rows, size_t cols, DType dtype) {
  const size_t most = std::numeric_limits<size_t>::max() / dtype_size(dtype);
  if (cols != 0 && rows > most / cols) throw std::bad_alloc();
  return {blocks_->take(rows * cols * dtype_size(dtype)), 0, dtype, rows, cols, cols};
}

void CpuBackend::fill(const Tensor& x, float value) {
  ++counters_.launches;
  cpu::fill(pool_, floats(x), value);
}

void CpuBackend::upload(const Tensor& dst, std::span<const float> data) {
  BW_CHECK(data.size() == dst.rows * dst.cols);
  ++counters_.uploads;
  counters_.upload_bytes += data.size_bytes();
  cpu::copy(pool_, ConstView(data.data(), dst.rows, dst.cols), floats(dst));
}

void CpuBackend::upload(const Tensor& dst, std::span<const int32_t> data) {
  BW_CHECK(data.size() == dst.rows * dst.cols);
  ++counters_.uploads;
  counters_.upload_bytes += data.size_bytes();
  const auto to = view_as<int32_t, DType::kI32>(dst);
  for (size_t r = 0; r < to.rows; ++r) std::copy_n(data.data() + r * to.cols, to.cols, to.row(r));
}

void CpuBackend::copy(const Tensor& src, const Tensor& dst) {
  BW_CHECK(src.rows == dst.rows && src.cols == dst.cols);
  ++counters_.launches;
  if (src.dtype == DType::kF32 && dst.dtype == DType::kF32) return cpu::copy(pool_, floats(src), floats(dst));
  if (src.dtype == DType::kF32 && dst.dtype == DType::kBF16) return to_bf16(pool_, floats(src), bf16s(dst));
  if (src.dtype == DType::kF32 && dst.dtype == DType::kF16) return to_f16(pool_, floats(src), halves(dst));
  if (src.dtype == DType::kBF16 && dst.dtype == DType::kF32) return from_bf16(pool_, bf16s(src), floats(dst));
  if (src.dtype == DType::kF16 && dst.dtype == DType::kF32) return from_f16(pool_, halves(src), floats(dst));
  BW_CHECK(src.dtype != DType::kI32 && dst.dtype != DType::kI32);
  const Tensor between = allocate(src.rows, src.cols, DType::kF32);
  copy(src, between);
  copy(between, dst);
}

void CpuBackend::read(const Tensor& src, std::span<float> out, std::string_view) {
  BW_CHECK(out.size() == src.rows * src.cols);
  ++counters_.reads;
  ++counters_.waits;
  counters_.read_bytes += out.size() * dtype_size(src.dtype);
  const View to(out.data(), src.rows, src.cols);
  switch (src.dtype) {
    case DType::kF32:
      return cpu::copy(pool_, floats(src), to);
    case DType::kBF16:
      return from_bf16(pool_, bf16s(src), to);
    case DType::kF16:
      return from_f16(pool_, halves(src), to);
    case DType::kI32:
      BW_CHECK(!"a float tensor");
  }
}

void CpuBackend::wait(std::string_view) { ++counters_.waits; }

// Matrix products

std::shared_ptr<Weight> CpuBackend::prepare_weight(std::span<const float> w, size_t out, size_t in, Precision p) {
  BW_CHECK(w.size() == out * in);
  ++counters_.uploads;
  counters_.upload_bytes += w.size_bytes();
  ConstView view(w.data(), out, in);
  const Operands operands = operands_of(p);
  if (operands != Operands::kRoundedF32) return std::make_shared<PackedWeight>(pool_, view, operands);
  Matrix<float> rounded(out, in);
  round_to_bf16(pool_, view, rounded.view());
  return std::make_shared<PackedWeight>(pool_, rounded.view(), operands);
}

void CpuBackend::linear(const Tensor& x, const Weight& w, const Tensor* bias, const Tensor& y, bool accumulate) {
  const auto* packed = dynamic_cast<const PackedWeight*>(&w);
  BW_CHECK(packed != nullptr && x.cols == w.in() && x.rows == y.rows && y.cols == w.out());
  const CountedProduct counted(counters_, product_flops(x.rows, w.out(), w.in()));
  const float* bias_data = bias && bias->memory ? floats(*bias, 1, w.out()).data : nullptr;
  const ConstView from = floats(x);
  const View to = floats(y);
  if (!y.empty()) gemm_.linear(from, *packed, bias_data, to, accumulate);
}

void CpuBackend::gemm(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c,
                      float alpha, float beta, Precision p) {
  const size_t m = transpose_a ? a.cols : a.rows, k = transpose_a ? a.rows : a.cols;
  const size_t b_k = transpose_b ? b.cols : b.rows, n = transpose_b ? b.rows : b.cols;
  BW_CHECK(k == b_k && c.rows == m && c.cols == n);
  const CountedProduct counted(counters_, product_flops(m, n, k));
  const ConstView left = floats(a), right = floats(b);
  const View to = floats(c);
  if (!c.empty()) gemm_.gemm(left, transpose_a, right, transpose_b, to, alpha, beta, operands_of(p));
}

void CpuBackend::accumulate_gram(const Tensor& x, const Tensor* weight, const Tensor& h, Precision p) {
  const CountedProduct counted(counters_, product_flops(x.rows, x.cols, x.cols + 1) / 2);
  const ConstView from = floats(x);
  const View to = floats(h, x.cols, x.cols);
  ConstView factors;
  if (weight) factors = floats(*weight, x.rows, 1);
  if (!x.empty()) gemm_.accumulate_gram(from, weight ? &factors : nullptr, to, operands_of(p));
}

// Element-wise and row-wise

void CpuBackend::rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& y) {
  BW_CHECK(weight.rows == 1 && weight.cols > 0 && x.cols % weight.cols == 0);
  ++counters_.launches;
  cpu::rms_norm(pool_, floats(x), floats(weight).row_span(0), eps, floats(y, x.rows, x.cols));
}

void CpuBackend::add(const Tensor& x, const Tensor& y) {
  ++counters_.launches;
  cpu::add(pool_, floats(x), floats(y, x.rows, x.cols));
}

void CpuBackend::scale(const Tensor& x, float factor) {
  ++counters_.launches;
  cpu::scale(pool_, floats(x), factor);
}

void CpuBackend::gated_activation(const Tensor& gate, const Tensor& up, ActivationKind kind, const Tensor& y) {
  ++counters_.launches;
  cpu::gated_activation(pool_, floats(gate, y.rows, y.cols), floats(up, y.rows, y.cols), kind, floats(y));
}

void CpuBackend::softcap(const Tensor& x, float cap) {
  BW_CHECK(cap > 0);
  ++counters_.launches;
  cpu::softcap(pool_, floats(x), cap);
}

void CpuBackend::rope(const Tensor& x, size_t head_dim, const Tensor& positions, const Tensor& cos_sin) {
  BW_CHECK(head_dim > 0 && head_dim % 2 == 0 && x.cols % head_dim == 0 && cos_sin.cols == head_dim);
  ++counters_.launches;
  cpu::rope(pool_, floats(x), head_dim, indices(positions, x.rows), floats(cos_sin));
}

void CpuBackend::row_squared_norms(const Tensor& x, const Tensor& out) {
  ++counters_.launches;
  cpu::row_squared_norms(pool_, floats(x), floats(out, x.rows, 1));
}

// Attention

void CpuBackend::attention(const Tensor& q, const Tensor& k, const Tensor& v, size_t sequences,
                           const AttentionShape& shape, const Tensor& out) {
  check_heads(shape);
  const size_t width = shape.n_heads * shape.head_dim, kv_width = shape.n_kv_heads * shape.head_dim;
  BW_CHECK(sequences > 0 ? q.rows % sequences == 0 : q.rows == 0);
  const ConstView queries = floats(q, q.rows, width), keys = floats(k, q.rows, kv_width),
                  values = floats(v, q.rows, kv_width);
  const View to = floats(out, q.rows, width);
  ++counters_.launches;
  if (q.rows == 0) return;
  counters_.gemm_flops += 4.0 * static_cast<double>(sequences * width) * visible_keys(q.rows / sequences, shape.window);
  cpu::attention(pool_, queries, keys, values, sequences, shape, to);
}

void CpuBackend::attention_cached(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache, size_t capacity,
                                  size_t length, const AttentionShape& shape, const Tensor& out) {
  check_heads(shape);
  const size_t width = shape.n_heads * shape.head_dim, kv_width = shape.n_kv_heads * shape.head_dim;
  BW_CHECK(length > 0 && length <= capacity && k_cache.stride == v_cache.stride);
  const ConstView queries = floats(q, q.rows, width);
  const ConstView keys = floats(k_cache, q.rows * capacity, kv_width),
                  values = floats(v_cache, q.rows * capacity, kv_width);
  const View to = floats(out, q.rows, width);
  ++counters_.launches;
  const size_t seen = shape.window == 0 ? length : std::min(length, shape.window);
  counters_.gemm_flops += 4.0 * static_cast<double>(q.rows * width) * static_cast<double>(seen);
  cpu::attention_cached(pool_, queries, keys, values, capacity, length, shape, to);
}

// Logits

void CpuBackend::token_nll(const Tensor& logits, const Tensor& targets, const Tensor& nll) {
  BW_CHECK(logits.cols > 0);
  ++counters_.launches;
  cpu::token_nll(pool_, floats(logits), indices(targets, logits.rows), floats(nll, logits.rows, 1));
}

void CpuBackend::compare_logits(const Tensor& p_logits, const Tensor& q_logits, const Tensor& targets,
                                const Tensor& out) {
  BW_CHECK(p_logits.cols > 0);
  ++counters_.launches;
  cpu::compare_logits(pool_, floats(p_logits), floats(q_logits, p_logits.rows, p_logits.cols),
                      indices(targets, p_logits.rows), floats(out, p_logits.rows, 4));
}

}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(size_t threads) {
  return std::make_unique<cpu::CpuBackend>(threads, cpu::cpu_multiplies_bf16());
}

}  // namespace bw::backend
