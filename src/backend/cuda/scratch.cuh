// Device memory for the time of one operation.
#pragma once

#include <functional>
#include <vector>

#include "backend/tensor.h"

namespace bw::backend::BW_CUDA_NAMESPACE {

using Allocate = std::function<Tensor(size_t rows, size_t cols, DType dtype)>;

// Lends memory to what is enqueued in the compute queue while it lives.
class Scratch {
 public:
  explicit Scratch(const Allocate& allocate) : allocate_(allocate) {}

  // n elements, undefined.
  template <typename T>
  T* take(size_t n) {
    held_.push_back(allocate_(1, n * sizeof(T), DType::kU8).memory);
    return static_cast<T*>(held_.back()->pointer());
  }

 private:
  const Allocate& allocate_;
  std::vector<std::shared_ptr<Memory>> held_;
};

}  // namespace bw::backend::BW_CUDA_NAMESPACE
