// As much of cuSOLVER as src/backend/cuda uses. See cuda_runtime.h.
#pragma once

#include "backend/fake_cuda/cublas_v2.h"

enum cusolverStatus_t { CUSOLVER_STATUS_SUCCESS = 0, CUSOLVER_STATUS_INVALID_VALUE = 3 };
using cusolverDnHandle_t = fake_cuda::Library*;

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle);
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle);
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream);
cusolverStatus_t cusolverDnSpotrf_bufferSize(cusolverDnHandle_t handle, cublasFillMode_t fill, int n, float* a, int lda,
                                             int* floats);
cusolverStatus_t cusolverDnSpotrf(cusolverDnHandle_t handle, cublasFillMode_t fill, int n, float* a, int lda,
                                  float* workspace, int floats, int* info);
