// The CPU as a device: operations run at once, on a pool of threads.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/memory.h"

namespace bw::backend::cpu {

class CpuBackend final : public Backend {
 public:
  // `bf16_hardware` false: multiplies as on a processor that has none.
  CpuBackend(size_t threads, bool bf16_hardware);

  std::string_view name() const override { return "cpu"; }
  bool multiplies_bf16() const override { return bf16_hardware_; }
  ThreadPool* host_pool() override { return &pool_; }
  const Counters& counters() const override { return counters_; }
  void reset_counters() override { counters_ = {}; }

  Tensor allocate(size_t rows, size_t cols, DType dtype) override;
  void fill(const Tensor& x, float value) override;
  void upload(const Tensor& dst, std::span<const float> data) override;
  void upload(const Tensor& dst, std::span<const int32_t> data) override;
  void copy(const Tensor& src, const Tensor& dst) override;
  void read(const Tensor& src, std::span<float> out, std::string_view what) override;
  void wait(std::string_view what) override;

  std::shared_ptr<Weight> prepare_weight(std::span<const float> w, size_t out, size_t in, Precision p) override;
  void linear(const Tensor& x, const Weight& w, const Tensor* bias, const Tensor& y, bool accumulate) override;
  void gemm(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c, float alpha,
            float beta, Precision p) override;
  void accumulate_gram(const Tensor& x, const Tensor* weight, const Tensor& h, Precision p) override;

  void rms_norm(const Tensor& x, const Tensor& weight, float eps, const Tensor& y) override;
  void add(const Tensor& x, const Tensor& y) override;
  void scale(const Tensor& x, float factor) override;
  void gated_activation(const Tensor& gate, const Tensor& up, ActivationKind kind, const Tensor& y) override;
  void softcap(const Tensor& x, float cap) override;
  void rope(const Tensor& x, size_t head_dim, const Tensor& positions, const Tensor& cos_sin) override;
  void row_squared_norms(const Tensor& x, const Tensor& out) override;

  void attention(const Tensor& q, const Tensor& k, const Tensor& v, size_t sequences, const AttentionShape& shape,
                 const Tensor& out) override;
  void attention_cached(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache, size_t capacity, size_t length,
                        const AttentionShape& shape, const Tensor& out) override;

  void token_nll(const Tensor& logits, const Tensor& targets, const Tensor& nll) override;
  void compare_logits(const Tensor& p_logits, const Tensor& q_logits, const Tensor& targets,
                      const Tensor& out) override;

 private:
  Operands operands_of(Precision p) const;

  bool bf16_hardware_;
  ThreadPool pool_;
  std::shared_ptr<BlockCache> blocks_ = std::make_shared<BlockCache>();
  Gemm gemm_;
  Counters counters_;
};

}  // namespace bw::backend::cpu
