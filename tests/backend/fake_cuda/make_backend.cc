#include "backend/cuda/cuda_backend.h"
#include "backend/fake_cuda/machine.h"

namespace fake_cuda {

std::unique_ptr<bw::backend::Backend> make_backend(uint64_t memory_limit) {
  return bw::backend::make_cuda_backend({0, memory_limit});
}

}  // namespace fake_cuda
