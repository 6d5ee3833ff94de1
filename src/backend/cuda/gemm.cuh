// Matrix products by cuBLASLt.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {

// A weight in device memory, (out, in), rows `stride` elements apart.
class DeviceWeight final : public Weight {
 public:
  DeviceWeight(size_t out, size_t in, bool bf16, const Allocate& allocate);
  bool bf16() const { return data_.dtype == DType::kBF16; }
  const Tensor& data() const { return data_; }

 private:
  Tensor data_;
};

class Gemm {
 public:
  Gemm(Device& device, const Allocate& allocate);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  void linear(const op::Linear& op);
  void gemm(const op::Gemm& op);
  void accumulate_gram(const op::AccumulateGram& op);

 private:
  // A row-major operand as it lies, and whether it is transposed.
  struct Operand {
    const void* data;
    size_t stride;
    bool transposed;
  };
  // c (m, n) = alpha · op(a) · op(b) + beta · c, operands of one type.
  struct Product {
    Operand a, b;
    bool bf16;
    Floats c;
    size_t k;
    float alpha, beta;
  };
  // Descriptors and the chosen algorithm of one shape.
  class Plan;
  using Key = std::array<size_t, 10>;

  void multiply(const Product& product);
  const Plan& plan_for(const Product& product);
  // Room for a matrix as bfloat16, rows a multiple of 16 bytes apart.
  View<BFloat16> bf16_room(Scratch& scratch, size_t rows, size_t cols) const;

  const Allocate& allocate_;
  cudaStream_t stream_;
  void* workspace_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace bw::backend::BW_CUDA_NAMESPACE
