#include "backend/cpu/cpu_backend.h"

#include <cstring>

#include "backend/cpu/matmul.h"

namespace bw::backend {
namespace cpu {

std::shared_ptr<Memory> CpuBackend::new_memory(size_t bytes, Queue) { return runner_.blocks().take(bytes); }

std::shared_ptr<Weight> CpuBackend::new_weight(size_t out, size_t in, Precision precision) {
  return runner_.new_weight(out, in, precision);
}

void CpuBackend::submit(Op op) {
  const int64_t begin = trace_ ? trace_->now() : 0;
  runner_.run(op);
  counters_.linear_seconds = runner_.linear_seconds();
  if (trace_) trace_->add({"cpu", std::string(name_of(op)), begin, trace_->now(), 0, work_of(op).flops});
}

std::shared_ptr<Memory> CpuBackend::submit_download(Tensor from) {
  const size_t row_bytes = from.cols * dtype_size(from.dtype);
  const bool dense = from.rows == 1 || from.stride == from.cols;
  if (dense && from.offset_bytes == 0 && from.memory.use_count() == 1) return std::move(from.memory);
  auto to = runner_.blocks().take(from.rows * row_bytes);
  const auto* source = static_cast<const std::byte*>(from.memory->pointer()) + from.offset_bytes;
  for (size_t r = 0; r < from.rows; ++r) {
    std::memcpy(static_cast<std::byte*>(to->pointer()) + r * row_bytes,
                source + r * from.stride * dtype_size(from.dtype), row_bytes);
  }
  return to;
}

}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(size_t threads) {
  return std::make_unique<cpu::CpuBackend>(threads, cpu::cpu_multiplies_bf16());
}

}  // namespace bw::backend
