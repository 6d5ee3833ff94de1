#include "backend/cuda/cuda_backend.h"

#include <utility>

#include "backend/cuda/backend.cuh"
#include "bitwright/error.h"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

size_t at(Queue queue) { return static_cast<size_t>(queue); }

// True if all that was enqueued before `event` has run.
bool has_run(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) return false;
  check(status, "cudaEventQuery");
  return true;
}

Span span_of(const Op& op) {
  Span span{"compute", std::string(name_of(op))};
  span.flops = work_of(op).flops;
  return span;
}

Span copy_span(std::string_view track, size_t bytes) {
  Span span{track, std::string(track)};
  span.bytes = bytes;
  return span;
}

void copy_rows(const Tensor& from, void* to, cudaStream_t stream) {
  const size_t width = from.cols * dtype_size(from.dtype), pitch = from.stride * dtype_size(from.dtype);
  const auto* source = static_cast<const std::byte*>(from.memory->pointer()) + from.offset_bytes;
  if (from.rows == 1 || pitch == width) {
    BW_CUDA_CALL(cudaMemcpyAsync, to, source, from.rows * width, cudaMemcpyDeviceToHost, stream);
  } else {
    BW_CUDA_CALL(cudaMemcpy2DAsync, to, width, source, pitch, width, from.rows, cudaMemcpyDeviceToHost, stream);
  }
}

}  // namespace

CudaBackend::CudaBackend(const CudaOptions& options)
    : device_(std::make_shared<Device>(options.device, options.memory_limit)),
      runner_(*device_, [this](size_t rows, size_t cols, DType dtype) { return allocate(rows, cols, dtype); }) {
  device_->count_in(&counters_);
}

// Waits for the copies, whose host memory goes next.
CudaBackend::~CudaBackend() {
  for (size_t q = 0; q < kQueues; ++q) {
    cudaStreamSynchronize(device_->stream(static_cast<Queue>(q)));
    for (const Copy& c : copies_[q]) device_->events().give_back(c.done);
    copies_[q].clear();
  }
  for (const auto& recorded : recorded_) {
    for (const Recorded& r : recorded) device_->events().give_back(r.event);
  }
  device_->count_in(nullptr);
}

std::shared_ptr<Memory> CudaBackend::new_memory(size_t bytes, Queue first) {
  reap();
  try {
    return std::make_shared<DeviceMemory>(device_, bytes, first);
  } catch (const CudaFailure& failure) {
    fail(failure.text);
  }
}

std::shared_ptr<Memory> CudaBackend::new_host_memory(size_t bytes) {
  reap();
  return std::make_shared<PinnedMemory>(device_, bytes);
}

std::shared_ptr<Weight> CudaBackend::new_weight(size_t out, size_t in, Precision precision) {
  return runner_.new_weight(out, in, precision);
}

template <typename Call>
void CudaBackend::attempt(const Call& call) {
  try {
    call();
  } catch (const CudaFailure& failure) {
    if (failure_.empty()) failure_ = failure.text;
  }
}

template <typename Work>
void CudaBackend::guarded(Queue queue, Span span, const Work& work) {
  if (!failure_.empty()) return;  // what follows would build on results that are not there
  const std::string name = span.name;
  try {
    if (trace_ != nullptr) {
      if (!timeline_) timeline_ = std::make_unique<Timeline>(*device_);
      timeline_->begin(queue, std::move(span));
    }
    work();
    if (trace_ != nullptr) timeline_->end(queue);
  } catch (const CudaFailure& failure) {
    failure_ = "'" + name + "' failed: " + failure.text;
    timeline_.reset();  // the span has no end
  } catch (...) {
    timeline_.reset();
    throw;
  }
}

void CudaBackend::submit(Op op) {
  running_[name_of(op)] = last_ticket_;
  guarded(Queue::kCompute, span_of(op), [&] { runner_.run(op); });
}

void CudaBackend::copy_enqueued(Queue queue, Memory& device_side, std::shared_ptr<Memory> host_side) {
  static_cast<DeviceMemory&>(device_side).used_by(queue);
  Copy copy{device_->events().take(), std::move(host_side)};
  BW_CUDA_CALL(cudaEventRecord, copy.done, device_->stream(queue));
  copies_[at(queue)].push_back(std::move(copy));
}

void CudaBackend::submit_upload(std::shared_ptr<Memory> from, size_t bytes, const std::shared_ptr<Memory>& to) {
  if (bytes == 0) return;
  guarded(Queue::kUpload, copy_span("upload", bytes), [&] {
    const cudaStream_t stream = device_->stream(Queue::kUpload);
    BW_CUDA_CALL(cudaMemcpyAsync, to->pointer(), from->pointer(), bytes, cudaMemcpyHostToDevice, stream);
    copy_enqueued(Queue::kUpload, *to, std::move(from));
  });
}

std::shared_ptr<Memory> CudaBackend::submit_download(Tensor from) {
  const size_t bytes = from.rows * from.cols * dtype_size(from.dtype);
  reap();
  auto to = std::make_shared<PinnedMemory>(device_, bytes);
  guarded(Queue::kDownload, copy_span("download", bytes), [&] {
    copy_rows(from, to->pointer(), device_->stream(Queue::kDownload));
    copy_enqueued(Queue::kDownload, *from.memory, to);
  });
  return to;
}

void CudaBackend::submit_record(const Event& event) {
  if (event.queue == Queue::kCompute) last_ticket_ = event.ticket;
  attempt([&] {
    const Recorded recorded{event.ticket, device_->events().take()};
    recorded_[at(event.queue)].push_back(recorded);
    BW_CUDA_CALL(cudaEventRecord, recorded.event, device_->stream(event.queue));
  });
}

cudaEvent_t CudaBackend::event_of(const Event& event) const {
  const auto& recorded = recorded_[at(event.queue)];
  if (!failure_.empty()) return nullptr;  // it may not have been recorded
  if (recorded.empty() || event.ticket < recorded.front().ticket) return nullptr;
  const size_t index = event.ticket - recorded.front().ticket;
  BW_CHECK(index < recorded.size() && recorded[index].ticket == event.ticket);
  return recorded[index].event;
}

void CudaBackend::submit_wait(Queue queue, const Event& event) {
  const cudaEvent_t recorded = event_of(event);
  if (recorded == nullptr) return;
  attempt([&] { BW_CUDA_CALL(cudaStreamWaitEvent, device_->stream(queue), recorded, 0); });
}

void CudaBackend::await(const Event& event) {
  if (const cudaEvent_t recorded = event_of(event)) {
    attempt([&] { BW_CUDA_CALL(cudaEventSynchronize, recorded); });
  }
  reap();
  if (!failure_.empty()) fail(std::exchange(failure_, {}));
  const uint64_t passed = event.clock[at(Queue::kCompute)];
  std::erase_if(running_, [passed](const auto& op) { return op.second < passed; });
}

void CudaBackend::fail(const std::string& text) {
  std::string names;
  for (const auto& [name, ticket] : running_) names += (names.empty() ? "" : ", ") + std::string(name);
  if (!names.empty()) names = " (not known to have ended: " + names + ")";
  throw Error(ErrorCode::kInternal, "device cuda: " + text + names,
              "set CUDA_LAUNCH_BLOCKING=1 in the environment to find the operation, and report it");
}

void CudaBackend::reap_copies(Queue queue) {
  auto& copies = copies_[at(queue)];
  while (!copies.empty() && has_run(copies.front().done)) {
    device_->events().give_back(copies.front().done);
    copies.pop_front();
  }
}

void CudaBackend::reap() {
  attempt([this] {
    reap_copies(Queue::kUpload);
    reap_copies(Queue::kDownload);
    for (auto& recorded : recorded_) {
      while (!recorded.empty() && has_run(recorded.front().event)) {
        device_->events().give_back(recorded.front().event);
        recorded.pop_front();
      }
    }
    if (timeline_ && trace_ != nullptr) timeline_->collect(*trace_);
  });
}

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  try {
    return std::make_unique<CudaBackend>(options);
  } catch (const CudaFailure& failure) {
    throw Error(ErrorCode::kInternal, "device cuda: it cannot be set up: " + failure.text,
                "check that the driver and the GPU work (nvidia-smi)");
  }
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
