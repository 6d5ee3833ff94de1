// As much of CUDA's runtime as src/backend/cuda uses, on the host: the tests compile the device's sources against it.
//
// Streams are queues that run as late as they may: work is done when something is waited for that depends on it, and
// nothing else is. So what relies on an order that it did not ask for shows. Blocks of a kernel run one after the
// other, each thread of a block as a fiber, so that __syncthreads works. One host thread at a time.
#pragma once

#include <math.h>  // with its functions in the global namespace, as CUDA has them
#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>

#define __global__
#define __device__
#define __host__
#define __shared__ static  // blocks run one after the other

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint3 {
  unsigned x, y, z;
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
void __syncthreads();

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
};

namespace fake_cuda {

struct Stream;
struct Event;
struct Pool;

// Enqueues `body`, to be run for every thread of every block.
void launch(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, Stream* stream, std::function<void()> body);
// Enqueues any other work.
void enqueue(Stream* stream, std::function<void()> work);
void* dynamic_shared();

}  // namespace fake_cuda

// Arguments are copied at the launch, as CUDA does.
#define BW_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                \
  do {                                                                                                           \
    ::fake_cuda::launch(#kernel, grid, block, shared_bytes, stream, [arguments = std::make_tuple(__VA_ARGS__)] { \
      std::apply([](const auto&... each) { kernel(each...); }, arguments);                                       \
    });                                                                                                          \
    ::bw::backend::BW_CUDA_NAMESPACE::check(cudaGetLastError(), #kernel);                                        \
  } while (0)
#define BW_DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(::fake_cuda::dynamic_shared())

using cudaStream_t = fake_cuda::Stream*;
using cudaEvent_t = fake_cuda::Event*;
using cudaMemPool_t = fake_cuda::Pool*;

enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
enum cudaMemAllocationType { cudaMemAllocationTypePinned = 1 };
enum cudaMemAllocationHandleType { cudaMemHandleTypeNone = 0 };
enum cudaMemLocationType { cudaMemLocationTypeDevice = 1 };
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2,
                          cudaHostAllocDefault = 0;

struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
struct cudaMemPoolProps {
  cudaMemAllocationType allocType;
  cudaMemAllocationHandleType handleTypes;
  cudaMemLocation location;
};
struct cudaDeviceProp {
  char name[256];
  int major, minor;
  int memoryPoolsSupported;
};

const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaSetDevice(int device);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end);

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties);
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes);
cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream);
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* pointer);

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream);
