#include "backend/backend.h"

namespace bw::backend {

size_t dtype_size(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
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

}  // namespace bw::backend
