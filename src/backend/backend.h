// The device interface. A device is far away: operations are enqueued and never wait; the host reads through one named,
// counted call. `cpu` runs each operation at once. What the pipeline may assume is only what stands here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"

namespace bw::backend {

enum class DType : uint8_t { kF32, kBF16, kF16, kI32 };
size_t dtype_size(DType type);

// How matrix products are computed. kF32: float in, float accumulation. kBF16: operands rounded to bfloat16, float
// accumulation. kAuto: kBF16 where the device multiplies bfloat16 in hardware, else kF32.
enum class Precision : uint8_t { kF32, kBF16, kAuto };

// Device memory. Freed when the last Tensor that refers to it goes.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void* device_pointer() = 0;
  virtual size_t bytes() const = 0;
};

// A row-major matrix in device memory: a handle, cheap to copy, that keeps its memory alive. Row r begins r * stride
// elements after the first.
struct Tensor {
  std::shared_ptr<Memory> memory;
  size_t offset_bytes = 0;
  DType dtype = DType::kF32;
  size_t rows = 0, cols = 0, stride = 0;

  bool empty() const { return rows == 0 || cols == 0; }
  // Rows [first, first + count) of the same memory.
  Tensor rows_slice(size_t first, size_t count) const;
  // Columns [first, first + count) of the same memory.
  Tensor cols_slice(size_t first, size_t count) const;
};

// A weight matrix of a linear in the form that the device multiplies fastest. Made by Backend::prepare_weight.
class Weight {
 public:
  virtual ~Weight() = default;
  virtual size_t in() const = 0;
  virtual size_t out() const = 0;
};

struct AttentionShape {
  size_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  float scale = 0;    // multiplies q·k
  float softcap = 0;  // softcap * tanh(score / softcap) before the mask; 0: none
  size_t window = 0;  // positions a query sees, itself included; 0: all before it
};

// What crossed between host and device and how often the host waited, since the start or the last reset.
struct Counters {
  uint64_t launches = 0, uploads = 0, upload_bytes = 0, reads = 0, read_bytes = 0, waits = 0;
  double gemm_flops = 0;      // of all matrix products, attention's included, 2 per multiply-add
  double linear_flops = 0;    // the part of linear, gemm and accumulate_gram
  double linear_seconds = 0;  // and the time in them, on a device that runs operations at once (else 0)
};

enum class ActivationKind : uint8_t { kSilu, kGeluTanh, kGelu };

// One device with one in-order queue. Not thread-safe: one thread enqueues. All tensors are float unless stated.
// T = tokens (rows of the matrices), in row order: for rows of calibration, row after row.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual bool multiplies_bf16() const = 0;  // in hardware
  // The threads of a backend whose device memory is host memory (so that tensors may be made of host matrices, see
  // host.h); null for any other.
  virtual ThreadPool* host_pool() { return nullptr; }
  virtual const Counters& counters() const = 0;
  virtual void reset_counters() = 0;

  // Memory and copies ----------------------------------------------------------------------------------------------
  virtual Tensor allocate(size_t rows, size_t cols, DType dtype = DType::kF32) = 0;  // contents undefined
  virtual void fill(const Tensor& x, float value) = 0;
  // Host to device; the host data may be reused on return. data.size() == rows * cols.
  virtual void upload(const Tensor& dst, std::span<const float> data) = 0;
  virtual void upload(const Tensor& dst, std::span<const int32_t> data) = 0;
  virtual void copy(const Tensor& src, const Tensor& dst) = 0;  // same shape; converts between float types
  // The one way to see device data: waits for the queue, then copies. `what` names the reason in counters and traces.
  virtual void read(const Tensor& src, std::span<float> out, std::string_view what) = 0;
  // Enqueues nothing more until the queue is empty.
  virtual void wait(std::string_view what) = 0;

  // Matrix products ------------------------------------------------------------------------------------------------
  // w: (out, in) float on the host.
  virtual std::shared_ptr<Weight> prepare_weight(std::span<const float> w, size_t out, size_t in, Precision p) = 0;
  // y (T, out) = x (T, in) · wᵀ + bias (out; null data: none); with `accumulate`, y += the same.
  virtual void linear(const Tensor& x, const Weight& w, const Tensor* bias, const Tensor& y,
                      bool accumulate = false) = 0;
  // c (m, n) = alpha · op(a) · op(b) + beta · c. op(a): (m, k), op(b): (k, n).
  virtual void gemm(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c, float alpha,
                    float beta, Precision p) = 0;
  // Upper triangle of h (n, n) += Σ_t weight_t · x_t x_tᵀ, for x (T, n), weight (T, 1) or null for ones. The lower
  // triangle is undefined. The order of summation depends on T alone.
  virtual void accumulate_gram(const Tensor& x, const Tensor* weight, const Tensor& h, Precision p) = 0;

  // Element-wise and row-wise --------------------------------------------------------------------------------------
  // y_t = x_t / sqrt(mean(x_t²) + eps) · weight, for each run of `weight.cols` columns of a row (heads: several a row).
  virtual void rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& y) = 0;
  virtual void add(const Tensor& x, const Tensor& y) = 0;  // y += x
  virtual void scale(const Tensor& x, float factor) = 0;   // x *= factor
  // y = act(gate) * up, all (T, n); y may be gate or up.
  virtual void gated_activation(const Tensor& gate, const Tensor& up, ActivationKind kind, const Tensor& y) = 0;
  // x = cap * tanh(x / cap)
  virtual void softcap(const Tensor& x, float cap) = 0;
  // Rotates pairs (i, i + head_dim/2) of every head of x (T, heads * head_dim) by the angle of its position:
  // cos_sin (positions, head_dim) holds cos in the first half of a row, sin in the second; positions (T, 1) i32.
  virtual void rope(const Tensor& x, size_t head_dim, const Tensor& positions, const Tensor& cos_sin) = 0;
  // out (T, 1) = Σ_c x_tc²
  virtual void row_squared_norms(const Tensor& x, const Tensor& out) = 0;

  // Attention ------------------------------------------------------------------------------------------------------
  // Causal attention of `sequences` rows of equal length L = T / sequences. q (T, n_heads·head_dim), k, v (T,
  // n_kv·head_dim), out as q. Memory does not grow with L².
  virtual void attention(const Tensor& q, const Tensor& k, const Tensor& v, size_t sequences,
                         const AttentionShape& shape, const Tensor& out) = 0;
  // One new token per sequence against its cache: q (S, n_heads·head_dim), cache k, v (S·capacity, n_kv·head_dim), the
  // first `length` positions of each sequence filled (the new token's included).
  virtual void attention_cached(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache, size_t capacity,
                                size_t length, const AttentionShape& shape, const Tensor& out) = 0;

  // Logits ---------------------------------------------------------------------------------------------------------
  // Per row t of logits (T, V) with target token y_t (T, 1 i32): nll_t = logsumexp(logits_t) - logits_t[y_t], in nats.
  virtual void token_nll(const Tensor& logits, const Tensor& targets, const Tensor& nll) = 0;
  // Per row: out (T, 4) = KLD(p ‖ q) in nats, nll of the target under p, under q, 1 if both have the same largest logit
  // else 0.
  virtual void compare_logits(const Tensor& p_logits, const Tensor& q_logits, const Tensor& targets,
                              const Tensor& out) = 0;
};

// `threads` 0: one per core. Results do not depend on it.
std::unique_ptr<Backend> make_cpu_backend(size_t threads = 0);

}  // namespace bw::backend
