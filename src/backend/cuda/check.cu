#include "backend/cuda/check.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // taken note of here: the next call shall not report it again
  throw CudaFailure{std::string(call) + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")"};
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CudaFailure{std::string(call) + ": " + cublasGetStatusString(status)};
}

void check(cusolverStatus_t status, const char* call) {
  if (status == CUSOLVER_STATUS_SUCCESS) return;
  throw CudaFailure{std::string(call) + ": cuSOLVER status " + std::to_string(static_cast<int>(status))};
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
