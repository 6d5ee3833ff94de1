// Operands of a case in the memory of a device, and back.
#pragma once

#include "backend/cases/case.h"

namespace bw::backend::conformance {

class Placed {
 public:
  Placed(Backend& device, const Operands& operands) : device_(device), operands_(operands) {
    for (const Operand& o : operands) {
      wholes_.push_back(upload_with_gaps(o));
      tensors_.push_back(wholes_.back().cols_slice(o.before, o.cols));
    }
  }
  std::span<const Tensor> tensors() const { return tensors_; }

  // All memory of all operands as it is after what has been enqueued, what lies beside their rows included.
  std::vector<std::vector<std::byte>> read() const {
    std::vector<HostTensor> copies;
    for (const Tensor& t : wholes_) copies.push_back(device_.download(t));
    std::vector<std::vector<std::byte>> memory;
    for (const HostTensor& copy : copies) {
      device_.wait(copy, "test");
      const std::span<std::byte> raw = copy.raw();
      memory.emplace_back(raw.begin(), raw.end());
    }
    return memory;
  }

  // The operands out of what read() has given. `fault` tells where something beside a row has changed.
  Operands operands_in(const std::vector<std::vector<std::byte>>& memory, std::string& fault) const {
    Operands after = operands_;
    for (size_t i = 0; i < after.size(); ++i) {
      Operand& o = after[i];
      const size_t size = dtype_size(o.dtype), begin = o.before * size, end = begin + o.cols * size;
      const size_t pitch = end + o.after * size;
      for (size_t r = 0; r < o.rows; ++r) {
        const std::byte* row = memory[i].data() + r * pitch;
        std::copy_n(row + begin, end - begin, o.bytes.data() + r * (end - begin));
        const auto changed = [](std::byte b) { return b != kUnset; };
        if (std::any_of(row, row + begin, changed) || std::any_of(row + end, row + pitch, changed)) {
          fault = fmt::format("operand {}: wrote beside row {}", i, r);
        }
      }
    }
    return after;
  }

 private:
  Tensor upload_with_gaps(const Operand& o) const {
    const size_t size = dtype_size(o.dtype), pitch = o.before + o.cols + o.after;
    HostTensor staged = device_.stage(o.rows, pitch, o.dtype);
    const std::span<std::byte> raw = staged.raw();
    std::fill(raw.begin(), raw.end(), kUnset);
    for (size_t r = 0; r < o.rows && o.cols != 0; ++r) {
      std::memcpy(&raw[(r * pitch + o.before) * size], o.bytes.data() + r * o.cols * size, o.cols * size);
    }
    return device_.upload(std::move(staged));
  }

  Backend& device_;
  const Operands& operands_;
  std::vector<Tensor> wholes_, tensors_;
};

}  // namespace bw::backend::conformance
