// Non-owning and owning dense row-major matrices on the host.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

#include "base/check.h"

namespace bw {

// A view of rows × cols elements; row r begins at data + r * stride. Does not own; cheap to copy.
template <typename T>
struct MatrixView {
  T* data = nullptr;
  size_t rows = 0;
  size_t cols = 0;
  size_t stride = 0;  // elements between the starts of two rows, >= cols

  MatrixView() = default;
  MatrixView(T* d, size_t r, size_t c) : data(d), rows(r), cols(c), stride(c) {}
  MatrixView(T* d, size_t r, size_t c, size_t s) : data(d), rows(r), cols(c), stride(s) {}
  // A mutable view is usable where a constant one is wanted.
  operator MatrixView<const T>() const requires(!std::is_const_v<T>) { return {data, rows, cols, stride}; }

  T* row(size_t r) const {
    BW_DCHECK(r < rows);
    return data + r * stride;
  }
  T& operator()(size_t r, size_t c) const {
    BW_DCHECK(r < rows && c < cols);
    return data[r * stride + c];
  }
  std::span<T> row_span(size_t r) const { return {row(r), cols}; }
  // Rows [first, first + count).
  MatrixView rows_slice(size_t first, size_t count) const {
    BW_DCHECK(first + count <= rows);
    return {data + first * stride, count, cols, stride};
  }
  // Columns [first, first + count).
  MatrixView cols_slice(size_t first, size_t count) const {
    BW_DCHECK(first + count <= cols);
    return {data + first, rows, count, stride};
  }
};

struct FreeDeleter {
  void operator()(void* p) const noexcept { std::free(p); }
};

// 64-byte aligned array. With `zeroed`, its elements are zero; otherwise they are not initialised.
template <typename T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t n, bool zeroed = false) : size_(n) {
    if (n == 0) return;
    if (n > (size_t{1} << 60) / sizeof(T)) throw std::bad_alloc();
    const size_t bytes = (n * sizeof(T) + 63) / 64 * 64;
    data_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
    if (!data_) throw std::bad_alloc();
    if (zeroed) std::memset(data_.get(), 0, bytes);
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  std::span<T> span() { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }

 private:
  std::unique_ptr<T, FreeDeleter> data_;
  size_t size_ = 0;
};

// Owns its elements, rows without padding. Move-only; not initialised unless `zeroed`.
template <typename T>
class Matrix {
 public:
  Matrix() = default;
  Matrix(size_t rows, size_t cols, bool zeroed = false) : buffer_(rows * cols, zeroed), rows_(rows), cols_(cols) {}
  size_t rows() const { return rows_; }
  size_t cols() const { return cols_; }
  T* data() { return buffer_.data(); }
  const T* data() const { return buffer_.data(); }
  T* row(size_t r) { return data() + r * cols_; }
  const T* row(size_t r) const { return data() + r * cols_; }
  T& operator()(size_t r, size_t c) { return data()[r * cols_ + c]; }
  const T& operator()(size_t r, size_t c) const { return data()[r * cols_ + c]; }
  MatrixView<T> view() { return {data(), rows_, cols_}; }
  MatrixView<const T> view() const { return {data(), rows_, cols_}; }
  std::span<T> span() { return buffer_.span(); }
  std::span<const T> span() const { return buffer_.span(); }
  Matrix clone() const {
    Matrix m(rows_, cols_);
    if (buffer_.size() != 0) std::memcpy(m.data(), data(), buffer_.size() * sizeof(T));
    return m;
  }

 private:
  AlignedBuffer<T> buffer_;
  size_t rows_ = 0;
  size_t cols_ = 0;
};

}  // namespace bw
