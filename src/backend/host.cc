#include "backend/host.h"

namespace bw::backend {
namespace {

class BorrowedMemory final : public Memory {
 public:
  BorrowedMemory(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  void* device_pointer() override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  void* data_;
  size_t bytes_;
};

}  // namespace

Tensor borrow(MatrixView<float> m) {
  const size_t span = m.rows == 0 ? 0 : (m.rows - 1) * m.stride + m.cols;
  return {std::make_shared<BorrowedMemory>(m.data, span * sizeof(float)), 0, DType::kF32, m.rows, m.cols, m.stride};
}

Tensor borrow(MatrixView<const float> m) {
  return borrow(MatrixView<float>(const_cast<float*>(m.data), m.rows, m.cols, m.stride));
}

MatrixView<float> host_view(const Tensor& t) {
  BW_CHECK(t.dtype == DType::kF32);
  if (!t.memory) return {nullptr, t.rows, t.cols, t.stride};
  auto* base = static_cast<std::byte*>(t.memory->device_pointer()) + t.offset_bytes;
  return {reinterpret_cast<float*>(base), t.rows, t.cols, t.stride};
}

}  // namespace bw::backend
