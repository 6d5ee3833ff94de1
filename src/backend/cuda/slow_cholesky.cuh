// What is done about a Hessian that cuSOLVER could not factor: decided and done on the device.
#pragma once

#include "backend/cuda/kernels.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {

// H + damping · mean · I, rows and columns in reversed order of activation; the identity where H is not finite.
struct DampedHessian {
  ConstFloats h;          // (n, n), upper triangle
  ConstInts order;        // (n, 1)
  const float* diagonal;  // (n), dead inputs at the mean
  const float* mean;
  const int32_t* status;  // op::FactorStatus
  float damping;

  __host__ __device__ size_t n() const { return h.rows; }
  __device__ float at(size_t r, size_t c, float damp) const {
    if (status[op::kNotFinite] != 0) return r == c ? 1.0f : 0.0f;
    const auto i = static_cast<size_t>(order(n() - 1 - r, 0)), j = static_cast<size_t>(order(n() - 1 - c, 0));
    if (i == j) return diagonal[i] + damp * *mean;
    return i < j ? h(i, j) : h(j, i);
  }
};

// a (n, n), dense: holds L below its diagonal where *info is 0, and is left alone if its diagonal is finite. Else tries
// higher dampings as InverseFactor says, and at last makes it diag(sqrt(h_ii)) in natural order. Sets
// status[kDampingSteps], and order if it becomes natural. Slow, on one block of threads: rarely needed, always
// enqueued.
void factor_if_failed(cudaStream_t stream, const DampedHessian& h, const int32_t* info, float* a, Ints order,
                      int32_t* status);

}  // namespace bw::backend::BW_CUDA_NAMESPACE
