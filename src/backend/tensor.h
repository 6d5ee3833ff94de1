// Matrices in device memory and on the host's side of a copy: handles, cheap to copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "base/check.h"
#include "base/half.h"
#include "base/matrix.h"

namespace bw::backend {

// kF64 for sums that many operations add to; kU8 and kI32 for codes, indices and packed words.
enum class DType : uint8_t { kF32, kF64, kBF16, kF16, kI32, kU8 };
size_t dtype_size(DType type);

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::kF32> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::kF64> {};
template <>
struct DTypeOf<BFloat16> : std::integral_constant<DType, DType::kBF16> {};
template <>
struct DTypeOf<Half> : std::integral_constant<DType, DType::kF16> {};
template <>
struct DTypeOf<int32_t> : std::integral_constant<DType, DType::kI32> {};
template <>
struct DTypeOf<uint8_t> : std::integral_constant<DType, DType::kU8> {};

// A device works through three queues, each in the order in which things were enqueued.
enum class Queue : uint8_t { kCompute, kUpload, kDownload };
inline constexpr size_t kQueues = 3;

// How far each queue has been enqueued, or is known to have run: a ticket for each.
using Clock = std::array<uint64_t, kQueues>;

// A point in a queue. It has passed when all that was enqueued there before has run. Ticket 0: nothing to wait for.
// `clock` is what has run by then in every queue, since queues wait for each other.
struct Event {
  Queue queue = Queue::kCompute;
  uint64_t ticket = 0;
  Clock clock{};
};

// Memory of a device, or of the host for copies to and from it. Freed when the last handle goes and no queue needs it
// any more.
class Memory {
 public:
  virtual ~Memory() = default;
  // Address on the side where it lies: only the device may follow one of the device.
  virtual void* pointer() = 0;
  virtual size_t bytes() const = 0;

 private:
  friend class Backend;
  friend struct HostTensor;
  // Copies that have not been waited for by what they concern: the one that fills it (to the device, or to the host),
  // and the last one that reads it.
  Event filled_, read_;
};

// A row-major matrix in device memory. Row r begins r * stride elements after the first.
struct Tensor {
  std::shared_ptr<Memory> memory;
  size_t offset_bytes = 0;
  DType dtype = DType::kF32;
  size_t rows = 0, cols = 0, stride = 0;

  bool empty() const { return rows == 0 || cols == 0; }
  // Rows [first, first + count) of the same memory.
  Tensor rows_slice(size_t first, size_t count) const;
  // Columns [first, first + count) of the same memory.
  Tensor cols_slice(size_t first, size_t count) const;
};

// A dense row-major matrix in host memory, from which a device copies or to which it has copied.
struct HostTensor {
  std::shared_ptr<Memory> memory;
  DType dtype = DType::kF32;
  size_t rows = 0, cols = 0;

  size_t bytes() const { return rows * cols * dtype_size(dtype); }
  // The elements. A copy to it must have been waited for (Backend::wait): anything else is an internal error.
  template <typename T>
  std::span<T> as() const {
    BW_CHECK(dtype == DTypeOf<std::remove_const_t<T>>::value);
    return {static_cast<T*>(settled_pointer()), rows * cols};
  }
  template <typename T>
  MatrixView<T> view() const {
    return {as<T>().data(), rows, cols};
  }
  std::span<std::byte> raw() const { return {static_cast<std::byte*>(settled_pointer()), bytes()}; }

 private:
  void* settled_pointer() const;
};

// How matrix products are computed. kF32: float in, float accumulation. kBF16: operands rounded to bfloat16, float
// accumulation. kAuto: kBF16 where the device multiplies bfloat16 in hardware, else kF32.
enum class Precision : uint8_t { kF32, kBF16, kAuto };

// A weight matrix (out, in) of a linear in the form that the device multiplies fastest. Made by Backend::pack_weight.
class Weight {
 public:
  Weight(size_t out, size_t in) : out_(out), in_(in) {}
  virtual ~Weight() = default;
  size_t in() const { return in_; }
  size_t out() const { return out_; }

 private:
  size_t out_, in_;
};

}  // namespace bw::backend
