// One CUDA device: its streams, events and memory. Shared by the backend and by all memory it has given out, which may
// outlive it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/check.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {

// Events that are recorded again and again, with times or without.
class EventPool {
 public:
  explicit EventPool(unsigned flags) : flags_(flags) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  cudaEvent_t take();
  void give_back(cudaEvent_t event) noexcept { free_.push_back(event); }

 private:
  unsigned flags_;
  std::vector<cudaEvent_t> free_;
};

// Page-locked host memory, kept for the next copy of about its size: locking pages takes far longer than copying them.
class PinnedPool {
 public:
  PinnedPool() = default;
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // Size of the block that is lent for `bytes`.
  static size_t block_bytes(size_t bytes);
  // A block that no copy uses any more. Throws Error(kIo) where the system has none.
  void* take(size_t block_bytes);
  void give_back(void* block, size_t block_bytes) noexcept;

 private:
  std::multimap<size_t, void*> free_;
  size_t free_bytes_ = 0;
};

// Not thread-safe.
class Device {
 public:
  // Throws Error(kUsage) if the device cannot be used, CudaFailure if it fails.
  Device(int index, uint64_t memory_limit);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  cudaStream_t stream(Queue queue) const { return streams_[static_cast<size_t>(queue)]; }
  EventPool& events() { return events_; }
  EventPool& timed_events() { return timed_events_; }
  PinnedPool& pinned() { return pinned_; }
  uint64_t memory_limit() const { return memory_limit_; }

  // Memory that `queue` may use from now on, in its order. Throws OutOfDeviceMemory.
  void* allocate(size_t bytes, Queue queue);
  // Once the compute queue has come this far.
  void free(void* pointer, size_t bytes) noexcept;
  // Where allocate and free count what is in use; null: nowhere.
  void count_in(Counters* counters) { counters_ = counters; }

 private:
  void choose(int index);
  void create_pool(int index);

  uint64_t memory_limit_;
  uint64_t used_bytes_ = 0;
  Counters* counters_ = nullptr;
  std::array<cudaStream_t, kQueues> streams_{};
  cudaMemPool_t pool_ = nullptr;
  EventPool events_{cudaEventDisableTiming | cudaEventBlockingSync};
  EventPool timed_events_{cudaEventBlockingSync};
  PinnedPool pinned_;
};

class DeviceMemory final : public Memory {
 public:
  DeviceMemory(std::shared_ptr<Device> device, size_t bytes, Queue queue)
      : device_(std::move(device)), pointer_(device_->allocate(bytes, queue)), bytes_(bytes) {}
  ~DeviceMemory() override;
  void* pointer() override { return pointer_; }
  size_t bytes() const override { return bytes_; }

  // It is not freed before what has been enqueued in `queue` by now has run. Each such use must come after the last, as
  // Backend orders them.
  void used_by(Queue queue);

 private:
  std::shared_ptr<Device> device_;
  void* pointer_;
  size_t bytes_;
  cudaEvent_t last_use_ = nullptr;  // in a queue other than compute's
};

class PinnedMemory final : public Memory {
 public:
  PinnedMemory(std::shared_ptr<Device> device, size_t bytes)
      : device_(std::move(device)),
        block_bytes_(PinnedPool::block_bytes(bytes)),
        pointer_(device_->pinned().take(block_bytes_)),
        bytes_(bytes) {}
  ~PinnedMemory() override { device_->pinned().give_back(pointer_, block_bytes_); }
  void* pointer() override { return pointer_; }
  size_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<Device> device_;
  size_t block_bytes_;
  void* pointer_;
  size_t bytes_;
};

}  // namespace bw::backend::BW_CUDA_NAMESPACE
