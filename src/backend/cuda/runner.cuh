// Enqueues operations in the compute stream.
#pragma once

#include "backend/cuda/factor.cuh"
#include "backend/cuda/gemm.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {

class Runner {
 public:
  // `allocate`: for weights, and for memory that operations need on the way.
  Runner(Device& device, Allocate allocate);

  // `op` has been checked.
  void run(const Op& op);
  std::shared_ptr<Weight> new_weight(size_t out, size_t in, Precision precision) const;

 private:
  cudaStream_t stream_;
  Allocate allocate_;
  Gemm gemm_;
  Factorizer factorizer_;
};

}  // namespace bw::backend::BW_CUDA_NAMESPACE
