// Return codes of CUDA's libraries.
#pragma once

#include <string>

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cusolverDn.h>

#include "backend/cuda/cuda_backend.h"

namespace bw::backend::BW_CUDA_NAMESPACE {

// A call that failed. The backend adds what it was doing and makes it an Error, at the host's next wait.
struct CudaFailure {
  std::string text;  // "cudaMemcpyAsync: an illegal memory access was encountered (cudaErrorIllegalAddress)"
};

// Throw CudaFailure unless the call succeeded. `call` names it.
void check(cudaError_t status, const char* call);
void check(cublasStatus_t status, const char* call);
void check(cusolverStatus_t status, const char* call);

}  // namespace bw::backend::BW_CUDA_NAMESPACE

// BW_CUDA_CALL(cudaStreamCreate, &stream)
#define BW_CUDA_CALL(function, ...) ::bw::backend::BW_CUDA_NAMESPACE::check(function(__VA_ARGS__), #function)
