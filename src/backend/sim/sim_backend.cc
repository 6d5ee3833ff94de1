#include "backend/sim/sim_backend.h"

#include <cstring>
#include <thread>

namespace bw::backend::sim {
namespace {

constexpr std::string_view kTracks[kQueues] = {"compute", "upload", "download"};

HostMemory& host_memory(Memory& memory) {
  auto* host = dynamic_cast<HostMemory*>(&memory);
  BW_CHECK(host != nullptr);  // else it was staged on another device
  return *host;
}

}  // namespace

SimBackend::SimBackend(const SimOptions& options)
    : options_(options),
      runner_(options.threads, options.bf16_hardware),
      account_(std::make_shared<Account>(options.memory_limit)),
      timeline_(options.model) {}

DeviceMemory& SimBackend::own(Memory& memory) const {
  auto* device = dynamic_cast<DeviceMemory*>(&memory);
  BW_CHECK(device != nullptr && device->account() == account_.get());  // else it is of another device
  return *device;
}

const SimWeight& SimBackend::own(const Weight& weight) const {
  const auto* sim = dynamic_cast<const SimWeight*>(&weight);
  BW_CHECK(sim != nullptr && sim->place().account() == account_.get());
  return *sim;
}

std::shared_ptr<Memory> SimBackend::new_memory(size_t bytes, Queue) {
  auto memory = std::make_shared<DeviceMemory>(bytes, account_);
  counters_.device_bytes = account_->used();
  counters_.most_device_bytes = account_->most_used();
  return memory;
}

std::shared_ptr<Memory> SimBackend::new_host_memory(size_t bytes) {
  return std::make_shared<HostMemory>(bytes, /*staged=*/true);
}

std::shared_ptr<Weight> SimBackend::new_weight(size_t out, size_t in, Precision precision) {
  const bool two_bytes = precision == Precision::kBF16 || (precision == Precision::kAuto && multiplies_bf16());
  const Tensor place = allocate(out, in, two_bytes ? DType::kBF16 : DType::kF32);
  return std::make_shared<SimWeight>(runner_.new_weight(out, in, precision),
                                     std::static_pointer_cast<DeviceMemory>(place.memory));
}

uint64_t SimBackend::translate(Op& op) {
  uint64_t bytes = 0;
  hazards_.begin(Queue::kCompute, name_of(op));
  if (auto* pack = std::get_if<op::PackWeight>(&op)) pack->packed = own(*pack->packed).packed();
  if (auto* linear = std::get_if<op::Linear>(&op)) linear->w = own(*linear->w).packed();
  const auto operand = [&](const Tensor& t, Access access) {
    if (!t.memory) return;
    DeviceMemory& memory = own(*t.memory);
    if (!t.empty()) hazards_.use(memory.history(), access);
    bytes += t.rows * t.cols * dtype_size(t.dtype);
    const_cast<Tensor&>(t).memory = memory.device_side();  // `op` itself is not constant
  };
  std::visit([&](auto& o) { o.operands(operand); }, op);
  return bytes;
}

void SimBackend::submit(Op op) {
  const uint64_t bytes = translate(op);
  const double flops = work_of(op).flops;
  timeline_.operation(flops, bytes);
  Span span{{}, std::string(name_of(op)), 0, 0, 0, flops};
  enqueue_timed(Queue::kCompute, options_.launch_delay, std::move(span), [this, o = std::move(op)] { runner_.run(o); });
}

void SimBackend::enqueue_timed(Queue queue, std::chrono::nanoseconds delay, Span span, Queues::Work work) {
  span.track = kTracks[index_of(queue)];
  queues_.enqueue(queue, [delay, span = std::move(span), trace = trace_, work = std::move(work)]() mutable {
    if (trace) span.begin_ns = trace->now();
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    work();
    if (!trace) return;
    span.end_ns = trace->now();
    trace->add(std::move(span));
  });
}

void SimBackend::enqueue_copy(Queue queue, uint64_t bytes, Queues::Work work) {
  std::chrono::nanoseconds delay = options_.copy_delay;
  if (options_.copy_bytes_per_second > 0) {
    const std::chrono::duration<double> moving(static_cast<double>(bytes) / options_.copy_bytes_per_second);
    delay += std::chrono::duration_cast<std::chrono::nanoseconds>(moving);
  }
  enqueue_timed(queue, delay, {{}, std::string(kTracks[index_of(queue)]), 0, 0, bytes, 0}, std::move(work));
}

// Poisoned again, behind what still uses it. An upload overwrites it as a whole.
void SimBackend::submit_reuse(const std::shared_ptr<Memory>& memory, Queue queue) {
  if (queue == Queue::kUpload) return;
  DeviceMemory& device = own(*memory);
  hazards_.begin(queue, "reuse");
  hazards_.use(device.history(), Access::kWrite);
  queues_.enqueue(queue, [side = device.device_side()] { std::memset(side->pointer(), kPoison, side->bytes()); });
}

void SimBackend::submit_upload(std::shared_ptr<Memory> from, size_t bytes, const std::shared_ptr<Memory>& to) {
  HostMemory& host = host_memory(*from);
  DeviceMemory& device = own(*to);
  hazards_.begin(Queue::kUpload, "upload");
  hazards_.use(host.history(), Access::kRead);
  hazards_.use(device.history(), Access::kWrite);
  host.give_up();
  timeline_.copy(Queue::kUpload, bytes, host.staged() ? bytes : 0);
  enqueue_copy(Queue::kUpload, bytes, [source = host.device_side(), target = device.device_side(), bytes] {
    std::memcpy(target->pointer(), source->pointer(), bytes);
  });
}

std::shared_ptr<Memory> SimBackend::submit_download(Tensor from) {
  DeviceMemory& device = own(*from.memory);
  const size_t row_bytes = from.cols * dtype_size(from.dtype);
  const uint64_t bytes = from.rows * row_bytes;
  const auto to = std::make_shared<HostMemory>(bytes, /*staged=*/false);
  hazards_.begin(Queue::kDownload, "download");
  hazards_.use(device.history(), Access::kRead);
  hazards_.use(to->history(), Access::kWrite);
  timeline_.copy(Queue::kDownload, bytes, 0);
  const size_t stride_bytes = from.stride * dtype_size(from.dtype);
  const auto copy = [source = device.device_side(), target = to->device_side(), offset = from.offset_bytes,
                     rows = from.rows, row_bytes, stride_bytes] {
    const auto* row = static_cast<const std::byte*>(source->pointer()) + offset;
    auto* out = static_cast<std::byte*>(target->pointer());
    for (size_t r = 0; r < rows; ++r) std::memcpy(out + r * row_bytes, row + r * stride_bytes, row_bytes);
  };
  enqueue_copy(Queue::kDownload, bytes, copy);
  downloads_.push_back(to);
  return to;
}

void SimBackend::submit_record(const Event& event) {
  hazards_.record(event);
  timeline_.record(event);
  queues_.record(event);
}

void SimBackend::submit_wait(Queue queue, const Event& event) {
  if (options_.forget_waits) return;
  hazards_.wait(queue, event);
  timeline_.wait(queue, event);
  queues_.wait(queue, event);
}

void SimBackend::await(const Event& event) {
  hazards_.await(event);
  timeline_.await(event);
  queues_.await(event);
  const Clock& known = hazards_.known_to_host();
  std::erase_if(downloads_, [&](const std::weak_ptr<HostMemory>& download) {
    const auto memory = download.lock();
    if (memory && !memory->written_by(known)) return false;
    if (memory) memory->open();
    return true;
  });
}

std::unique_ptr<Backend> make_sim_backend(const SimOptions& options) { return std::make_unique<SimBackend>(options); }

}  // namespace bw::backend::sim
