// The CUDA device. Only in builds that have it (BW_CUDA is defined); this header needs none of CUDA's.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"

// Everything of this folder lies in this namespace, so that tests can link it a second time, compiled for the host.
#ifndef BW_CUDA_NAMESPACE
#define BW_CUDA_NAMESPACE cuda
#endif

namespace bw::backend::BW_CUDA_NAMESPACE {

struct CudaOptions {
  int device = 0;             // its number, as the driver counts
  uint64_t memory_limit = 0;  // bytes that tensors may take; 0: nine tenths of what is free
};

// Throws Error(kUsage) if there is no driver, no such device, or one that is too old. Calls of the backend must come
// from the thread that made it. Fixed costs beside the tensors: 32 MiB for products, and the libraries' own.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

}  // namespace bw::backend::BW_CUDA_NAMESPACE

namespace bw::backend {
using BW_CUDA_NAMESPACE::CudaOptions;
using BW_CUDA_NAMESPACE::make_cuda_backend;
}  // namespace bw::backend
