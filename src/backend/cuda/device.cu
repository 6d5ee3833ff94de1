#include "backend/cuda/device.cuh"

#include <algorithm>
#include <limits>
#include <new>

#include "bitwright/error.h"
#include "bitwright/units.h"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

// bfloat16 in hardware, and memory pools.
constexpr int kLeastMajor = 8;
// Page-locked memory that may lie idle.
constexpr size_t kMostIdlePinned = size_t{4} << 30;

constexpr const char* kUseCpu = "run with --device cpu, or ";

// CUDA counts versions as 1000 · major + 10 · minor.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

[[noreturn]] void unusable(const std::string& found, const std::string& advice) {
  throw Error(ErrorCode::kUsage, "device cuda: " + found, kUseCpu + advice);
}

void check_driver() {
  int driver = 0, runtime = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    cudaGetLastError();
    unusable("no NVIDIA driver was found", "install the driver, or give the container access to it");
  }
  BW_CUDA_CALL(cudaRuntimeGetVersion, &runtime);
  if (driver / 1000 >= runtime / 1000 && cudaGetDeviceCount(&count) != cudaErrorInsufficientDriver) return;
  cudaGetLastError();
  unusable(
      "the NVIDIA driver knows CUDA up to " + version_text(driver) + ", but this build needs " + version_text(runtime),
      "update the driver");
}

int count_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  std::string found = "no NVIDIA GPU was found";
  if (status != cudaSuccess && status != cudaErrorNoDevice)
    found += std::string(" (") + cudaGetErrorString(status) + ")";
  unusable(found, "check what nvidia-smi and CUDA_VISIBLE_DEVICES say");
}

}  // namespace

EventPool::~EventPool() {
  for (const cudaEvent_t event : free_) cudaEventDestroy(event);
}

cudaEvent_t EventPool::take() {
  if (!free_.empty()) {
    const cudaEvent_t event = free_.back();
    free_.pop_back();
    return event;
  }
  cudaEvent_t event;
  BW_CUDA_CALL(cudaEventCreateWithFlags, &event, flags_);
  return event;
}

PinnedPool::~PinnedPool() {
  for (const auto& [bytes, block] : free_) cudaFreeHost(block);
}

// Whole pages, in steps of an eighth of the size, so that like sizes share blocks.
size_t PinnedPool::block_bytes(size_t bytes) {
  if (bytes == 0) return 0;
  size_t step = 4096;
  while (step < bytes / 8) step *= 2;
  if (bytes > std::numeric_limits<size_t>::max() - step) throw std::bad_alloc();
  return (bytes + step - 1) / step * step;
}

void* PinnedPool::take(size_t block_bytes) {
  if (block_bytes == 0) return nullptr;
  if (const auto found = free_.find(block_bytes); found != free_.end()) {
    void* const block = found->second;
    free_.erase(found);
    free_bytes_ -= block_bytes;
    return block;
  }
  void* block = nullptr;
  if (cudaHostAlloc(&block, block_bytes, cudaHostAllocDefault) == cudaSuccess) return block;
  cudaGetLastError();
  throw Error(ErrorCode::kIo,
              "device cuda: the system gives no " + format_bytes(block_bytes) + " of page-locked memory",
              "free memory, or raise the limit of locked memory (ulimit -l)");
}

void PinnedPool::give_back(void* block, size_t block_bytes) noexcept {
  if (block == nullptr) return;
  if (free_bytes_ + block_bytes > kMostIdlePinned) {
    cudaFreeHost(block);
    return;
  }
  try {
    free_.emplace(block_bytes, block);
    free_bytes_ += block_bytes;
  } catch (const std::bad_alloc&) {
    cudaFreeHost(block);
  }
}

Device::Device(int index, uint64_t memory_limit) : memory_limit_(memory_limit) {
  check_driver();
  choose(index);
  create_pool(index);
  for (cudaStream_t& stream : streams_) BW_CUDA_CALL(cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking);
  if (memory_limit_ != 0) return;
  size_t free_bytes = 0, total_bytes = 0;
  BW_CUDA_CALL(cudaMemGetInfo, &free_bytes, &total_bytes);
  memory_limit_ = free_bytes / 10 * 9;  // the rest for the libraries
}

// Nobody is left to tell of a failure.
Device::~Device() {
  for (const cudaStream_t stream : streams_) {
    if (stream == nullptr) continue;
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
  if (pool_ != nullptr) cudaMemPoolDestroy(pool_);
}

void Device::choose(int index) {
  const int count = count_devices();
  if (index < 0 || index >= count) {
    unusable("there is no GPU " + std::to_string(index) + ", only " + std::to_string(count), "choose another");
  }
  cudaDeviceProp properties;
  BW_CUDA_CALL(cudaGetDeviceProperties, &properties, index);
  if (properties.major < kLeastMajor) {
    unusable(std::string(properties.name) + " has compute capability " + std::to_string(properties.major) + "." +
                 std::to_string(properties.minor) + ", but 8.0 is needed",
             "use an Ampere GPU or a later one");
  }
  if (properties.memoryPoolsSupported == 0)
    unusable(std::string(properties.name) + " has no memory pools here", "update the driver");
  const cudaError_t status = cudaSetDevice(index);
  if (status != cudaSuccess) {
    cudaGetLastError();
    unusable(std::string(properties.name) + " cannot be used (" + cudaGetErrorString(status) + ")",
             "check that no other program holds it");
  }
}

void Device::create_pool(int index) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypeNone;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = index;
  BW_CUDA_CALL(cudaMemPoolCreate, &pool_, &properties);
  uint64_t keep = std::numeric_limits<uint64_t>::max();  // freed memory stays in the pool: asking the system is slow
  BW_CUDA_CALL(cudaMemPoolSetAttribute, pool_, cudaMemPoolAttrReleaseThreshold, &keep);
}

void* Device::allocate(size_t bytes, Queue queue) {
  if (bytes == 0) return nullptr;
  if (memory_limit_ != 0 && (bytes > memory_limit_ || used_bytes_ > memory_limit_ - bytes)) {
    throw OutOfDeviceMemory{format_bytes(used_bytes_) + " of " + format_bytes(memory_limit_) + " are in use"};
  }
  void* pointer = nullptr;
  cudaError_t status = cudaMallocFromPoolAsync(&pointer, bytes, pool_, stream(queue));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    BW_CUDA_CALL(cudaMemPoolTrimTo, pool_, 0);
    status = cudaMallocFromPoolAsync(&pointer, bytes, pool_, stream(queue));
  }
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfDeviceMemory{"the device is full, with " + format_bytes(used_bytes_) + " in use by this program"};
  }
  check(status, "cudaMallocFromPoolAsync");
  used_bytes_ += bytes;
  if (counters_ != nullptr) {
    counters_->device_bytes = used_bytes_;
    counters_->most_device_bytes = std::max(counters_->most_device_bytes, used_bytes_);
  }
  return pointer;
}

void Device::free(void* pointer, size_t bytes) noexcept {
  if (pointer == nullptr) return;
  cudaFreeAsync(pointer, stream(Queue::kCompute));  // fails only where an earlier call has, which is told at a wait
  used_bytes_ -= bytes;
  if (counters_ != nullptr) counters_->device_bytes = used_bytes_;
}

void DeviceMemory::used_by(Queue queue) {
  if (last_use_ == nullptr) last_use_ = device_->events().take();
  BW_CUDA_CALL(cudaEventRecord, last_use_, device_->stream(queue));
}

DeviceMemory::~DeviceMemory() {
  if (last_use_ != nullptr) {
    cudaStreamWaitEvent(device_->stream(Queue::kCompute), last_use_, 0);
    device_->events().give_back(last_use_);
  }
  device_->free(pointer_, bytes_);
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
