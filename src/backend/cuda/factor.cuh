// The factor of the inverse Hessian, without the host's looking at anything in between.
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {

class Factorizer {
 public:
  Factorizer(Device& device, const Allocate& allocate);
  ~Factorizer();
  Factorizer(const Factorizer&) = delete;
  Factorizer& operator=(const Factorizer&) = delete;

  void inverse_factor(const op::InverseFactor& op);

 private:
  const Allocate& allocate_;
  cudaStream_t stream_;
  void* workspace_ = nullptr;  // of cuBLAS
  cublasHandle_t blas_ = nullptr;
  cusolverDnHandle_t solver_ = nullptr;
};

}  // namespace bw::backend::BW_CUDA_NAMESPACE
