// Host matrices as tensors, for backends whose device memory is host memory (Backend::host_pool() is not null).
#pragma once

#include "backend/backend.h"
#include "base/matrix.h"

namespace bw::backend {

// A tensor over the matrix's elements. Does not own them: the matrix must outlive every operation enqueued on it.
Tensor borrow(MatrixView<float> m);
// The same for an operand that is only read.
Tensor borrow(MatrixView<const float> m);
// The elements of a float tensor of a host backend.
MatrixView<float> host_view(const Tensor& t);

}  // namespace bw::backend
