// Streams, events, memory and launches of the fake CUDA.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/fake_cuda/cuda_runtime.h"
#include "backend/fake_cuda/fibers.h"
#include "backend/fake_cuda/machine.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace fake_cuda {

struct Stream {
  std::deque<std::function<void()>> work;
};

// A record of an event: where in which stream.
struct Point {
  Stream* stream;
  bool passed = false;
  std::chrono::steady_clock::time_point time;
};

struct Event {
  std::shared_ptr<Point> point;  // null: never recorded
};

struct Pool {};

namespace {

cudaError_t last_error = cudaSuccess;  // of a call
cudaError_t fault = cudaSuccess;       // of work: all calls fail from then on
std::map<void*, size_t> allocated;     // device memory
size_t allocated_bytes = 0;
Fibers fibers;
std::vector<std::byte> shared;

void run_next(Stream& stream) {
  const std::function<void()> work = std::move(stream.work.front());
  stream.work.pop_front();
  work();
}

void run_until(const std::shared_ptr<Point>& point) {
  while (!point->passed) run_next(*point->stream);
}

cudaError_t result(cudaError_t error = cudaSuccess) {
  if (error == cudaSuccess) error = fault;
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

bool names(const std::string& pattern, const char* kernel) {
  return !pattern.empty() && std::string(kernel).find(pattern) != std::string::npos;
}

uint3 index_in(size_t i, dim3 size) {
  return {static_cast<unsigned>(i % size.x), static_cast<unsigned>(i / size.x % size.y),
          static_cast<unsigned>(i / size.x / size.y)};
}

void run_kernel(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& body) {
  gridDim = grid;
  blockDim = block;
  const size_t blocks = size_t{grid.x} * grid.y * grid.z, threads = size_t{block.x} * block.y * block.z;
  shared = std::vector<std::byte>(shared_bytes, std::byte{0xff});
  fibers.on_resume([block](size_t thread) { threadIdx = index_in(thread, block); });
  for (size_t b = 0; b < blocks; ++b) {
    blockIdx = index_in(b, grid);
    fibers.run(threads, [&](size_t thread) {
      threadIdx = index_in(thread, block);
      body();
    });
  }
}

}  // namespace

Machine& machine() {
  static Machine machine;
  return machine;
}

size_t device_bytes() { return allocated_bytes; }

void reset_errors() { last_error = fault = cudaSuccess; }

void* dynamic_shared() { return shared.data(); }

void enqueue(Stream* stream, std::function<void()> work) { stream->work.push_back(std::move(work)); }

void launch(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, Stream* stream,
            std::function<void()> body) {
  const size_t threads = size_t{block.x} * block.y * block.z;
  const bool possible = grid.x > 0 && grid.x < (1u << 31) && grid.y > 0 && grid.y < 65536 && grid.z > 0 &&
                        grid.z < 65536 && threads > 0 && threads <= 1024 && shared_bytes <= (48u << 10);
  if (!possible || names(machine().fails_to_launch, kernel)) {
    last_error = cudaErrorInvalidValue;
    return;
  }
  if (result() != cudaSuccess) return;
  const bool faulty = names(machine().faults, kernel);
  enqueue(stream, [=, body = std::move(body)] {
    if (faulty) fault = cudaErrorIllegalAddress;
    if (fault == cudaSuccess) run_kernel(grid, block, shared_bytes, body);
  });
}

}  // namespace fake_cuda

using namespace fake_cuda;

void __syncthreads() { fibers.barrier(); }

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    default:
      return "invalid argument";
  }
}

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaErrorInvalidValue";
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = fault;  // a fault stays
  return error;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = size_t{64} << 30;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = machine().driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = machine().runtime_version;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = machine().devices;
  if (machine().driver_version < machine().runtime_version) return result(cudaErrorInsufficientDriver);
  return result(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "Fake GPU");
  properties->major = machine().major;
  properties->minor = machine().minor;
  properties->memoryPoolsSupported = 1;
  return result();
}

cudaError_t cudaSetDevice(int device) {
  return result(device < machine().devices ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new Stream;
  return result();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  cudaStreamSynchronize(stream);
  delete stream;
  return result();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  while (!stream->work.empty()) run_next(*stream);
  return result();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->point) enqueue(stream, [point = event->point] { run_until(point); });
  return result();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new Event;
  return result();
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return result();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->point = std::make_shared<Point>(Point{stream, false, {}});
  enqueue(stream, [point = event->point] {
    point->passed = true;
    point->time = std::chrono::steady_clock::now();
  });
  return result();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return result(event->point && !event->point->passed ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->point) run_until(event->point);
  return result();
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->point || !begin->point->passed || !end->point || !end->point->passed)
    return result(cudaErrorInvalidValue);
  *ms = std::chrono::duration<float, std::milli>(end->point->time - begin->point->time).count();
  return result();
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  *pool = new Pool;
  return result();
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete pool;
  return result();
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return result(); }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return result(); }

// Fresh memory is NaN in every type.
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
  if (bytes == 0) return result(cudaErrorInvalidValue);
  if (bytes > machine().memory_bytes || allocated_bytes > machine().memory_bytes - bytes)
    return result(cudaErrorMemoryAllocation);
  if (posix_memalign(pointer, 256, bytes) != 0) return result(cudaErrorMemoryAllocation);
  std::memset(*pointer, 0xff, bytes);
  allocated[*pointer] = bytes;
  allocated_bytes += bytes;
  return result();
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t, cudaStream_t stream) {
  return cudaMallocAsync(pointer, bytes, stream);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  enqueue(stream, [pointer] {
    std::memset(pointer, 0xff, allocated.at(pointer));  // for those who read it afterwards
    allocated_bytes -= allocated.at(pointer);
    allocated.erase(pointer);
    std::free(pointer);
  });
  return result();
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  *pointer = machine().page_locks ? std::malloc(bytes) : nullptr;
  return result(*pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFreeHost(void* pointer) {
  std::free(pointer);
  return result();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return result();
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  if (to_pitch < width || from_pitch < width) return result(cudaErrorInvalidValue);
  enqueue(stream, [=] {
    for (size_t r = 0; r < height; ++r)
      std::memcpy(static_cast<std::byte*>(to) + r * to_pitch, static_cast<const std::byte*>(from) + r * from_pitch,
                  width);
  });
  return result();
}
