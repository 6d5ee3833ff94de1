#include "backend/tensor.h"

namespace bw::backend {

size_t dtype_size(DType type) {
  switch (type) {
    case DType::kF64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  BW_CHECK(!"known dtype");
  return 0;
}

Tensor Tensor::rows_slice(size_t first, size_t count) const {
  BW_CHECK(first <= rows && count <= rows - first);
  Tensor slice = *this;
  slice.offset_bytes += first * stride * dtype_size(dtype);
  slice.rows = count;
  return slice;
}

Tensor Tensor::cols_slice(size_t first, size_t count) const {
  BW_CHECK(first <= cols && count <= cols - first);
  Tensor slice = *this;
  slice.offset_bytes += first * dtype_size(dtype);
  slice.cols = count;
  return slice;
}

void* HostTensor::settled_pointer() const {
  if (!memory) {
    BW_CHECK(rows * cols == 0);
    return nullptr;
  }
  BW_CHECK(memory->filled_.ticket == 0);  // somebody must wait for the copy first
  return memory->pointer();
}

}  // namespace bw::backend
