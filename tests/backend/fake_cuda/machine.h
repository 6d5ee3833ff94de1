// The machine that the fake CUDA pretends to be, for tests to change.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "backend/backend.h"

namespace fake_cuda {

struct Machine {
  int driver_version = 13000, runtime_version = 13000;  // 0: no driver
  int devices = 1;
  int major = 9, minor = 0;  // compute capability
  size_t memory_bytes = size_t{4} << 30;
  std::string fails_to_launch;  // kernels whose names hold this are refused; empty: none
  std::string faults;           // these run into an illegal address
  bool page_locks = true;       // false: no page-locked memory is left
};

// That of the tests. Set before a backend is made.
Machine& machine();
// Bytes of device memory that are allocated now, by all.
size_t device_bytes();
// Every error so far is forgotten.
void reset_errors();

// The cuda backend on this machine. Throws what make_cuda_backend throws.
std::unique_ptr<bw::backend::Backend> make_backend(uint64_t memory_limit = 0);

}  // namespace fake_cuda
