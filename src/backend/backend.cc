#include "backend/backend.h"

#include <algorithm>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "bitwright/error.h"
#include "bitwright/units.h"

namespace bw::backend {
namespace {

size_t at(Queue queue) { return static_cast<size_t>(queue); }

size_t size_in_bytes(size_t rows, size_t cols, DType dtype) {
  const size_t most = std::numeric_limits<size_t>::max() / dtype_size(dtype);
  if (cols != 0 && rows > most / cols) throw std::bad_alloc();
  return rows * cols * dtype_size(dtype);
}

void merge(Clock& into, const Clock& other) {
  for (size_t q = 0; q < kQueues; ++q) into[q] = std::max(into[q], other[q]);
}

void check_inside(const Tensor& t) {
  if (t.empty()) return;
  BW_CHECK(t.memory && (t.rows == 1 || t.stride >= t.cols));
  BW_CHECK(t.offset_bytes + extent_bytes(t) <= t.memory->bytes());
}

// Times the host's waits.
class TimedWait {
 public:
  TimedWait(Counters& counters, Trace* trace, std::string_view what)
      : counters_(counters), trace_(trace), what_(what), begin_(trace ? trace->now() : 0) {}
  ~TimedWait() {
    counters_.wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    if (trace_) trace_->add({"waits", std::string(what_), begin_, trace_->now()});
  }
  TimedWait(const TimedWait&) = delete;
  TimedWait& operator=(const TimedWait&) = delete;

 private:
  Counters& counters_;
  Trace* trace_;
  std::string_view what_;
  int64_t begin_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

size_t extent_bytes(const Tensor& t) {
  return t.empty() ? 0 : ((t.rows - 1) * t.stride + t.cols) * dtype_size(t.dtype);
}

Backend::Backend() : pool_(std::make_shared<MemoryPool>([this] { return mark(); })) {}

Backend::~Backend() = default;

Event Backend::mark() {
  if (launches_at_mark_ == counters_.launches && last_mark_.ticket != 0) return last_mark_;
  return mark(Queue::kCompute);
}

// As seen by what is enqueued in `queue` from now on.
bool Backend::has_passed(const Event& event, Queue queue) const {
  return event.queue == queue ||
         std::max(host_clock_[at(event.queue)], clocks_[at(queue)][at(event.queue)]) >= event.ticket;
}

std::shared_ptr<Memory> Backend::reuse_memory(size_t bytes, Queue first, bool wait) {
  MemoryPool::Block block = pool_->take(bytes, first, [&](const MemoryPool::Block& b) {
    return wait ||
           (has_passed(b.freed, first) && has_passed(b.memory->filled_, first) && has_passed(b.memory->read_, first));
  });
  if (!block.memory) return nullptr;
  for (const Event& event : {block.freed, block.memory->filled_, block.memory->read_}) {
    if (!has_passed(event, first)) order(first, event);
  }
  block.memory->filled_ = block.memory->read_ = {};
  submit_reuse(block.memory, first);
  return pool_->lend(std::move(block.memory), first);
}

std::shared_ptr<Memory> Backend::allocate_bytes(size_t bytes, Queue first) {
  if (runs_at_once()) return new_memory(bytes, first);
  if (auto memory = reuse_memory(bytes, first, false)) return memory;
  try {
    return pool_->lend(new_memory(bytes, first), first);
  } catch (const OutOfDeviceMemory&) {
    if (auto memory = reuse_memory(bytes, first, true)) return memory;
    pool_->trim();
    wait_all("device memory");  // then what is trimmed is free
  }
  try {
    return pool_->lend(new_memory(bytes, first), first);
  } catch (const OutOfDeviceMemory& e) {
    throw Error(ErrorCode::kIo,
                fmt::format("device {}: {} more are needed, but {}", name(), format_bytes(bytes), e.found),
                "give more --device-memory: a batch of 4096 tokens, the weights of two layers and the head must fit");
  }
}

Tensor Backend::allocate(size_t rows, size_t cols, DType dtype) {
  return {allocate_bytes(size_in_bytes(rows, cols, dtype), Queue::kCompute), 0, dtype, rows, cols, cols};
}

Tensor Backend::zeros(size_t rows, size_t cols, DType dtype) {
  const Tensor sum = allocate(rows, cols, dtype);
  enqueue(op::Fill{sum, 0});
  return sum;
}

HostTensor Backend::stage(size_t rows, size_t cols, DType dtype) {
  return {new_host_memory(size_in_bytes(rows, cols, dtype)), dtype, rows, cols};
}

void Backend::order(Queue queue, const Event& event) {
  if (event.ticket == 0) return;
  if (event.queue != queue && clocks_[at(queue)][at(event.queue)] < event.ticket) submit_wait(queue, event);
  merge(clocks_[at(queue)], event.clock);
}

void Backend::settle(Memory& memory, Access access) {
  order(Queue::kCompute, memory.filled_);
  memory.filled_ = {};
  if (access == Access::kRead) return;  // it may be read while a copy reads it too
  order(Queue::kCompute, memory.read_);
  memory.read_ = {};
}

Event Backend::mark(Queue queue) {
  const uint64_t ticket = ++tickets_[at(queue)];
  clocks_[at(queue)][at(queue)] = ticket;
  const Event event{queue, ticket, clocks_[at(queue)]};
  submit_record(event);
  if (queue == Queue::kCompute) {
    last_mark_ = event;
    launches_at_mark_ = counters_.launches;
  }
  return event;
}

void Backend::enqueue(Op op) {
  std::visit(
      [this](const auto& o) {
        o.check();
        o.operands([this](const Tensor& t, Access access) {
          check_inside(t);
          if (!t.empty()) settle(*t.memory, access);
        });
      },
      op);
  const Work work = work_of(op);
  counters_.gemm_flops += work.flops;
  if (work.linear) counters_.linear_flops += work.flops;
  // Handles that the operation alone holds go back to the pool behind it, not while it is being submitted: their last
  // use ends with it.
  const std::optional<Op> held = runs_at_once() ? std::nullopt : std::optional(op);
  submit(std::move(op));
  ++counters_.launches;
}

std::shared_ptr<const Weight> Backend::pack_weight(const Tensor& w, Precision precision) {
  auto packed = new_weight(w.rows, w.cols, precision);
  enqueue(op::PackWeight{w, packed});
  return packed;
}

Tensor Backend::upload(HostTensor from) {
  ++counters_.uploads;
  counters_.upload_bytes += from.bytes();
  const size_t bytes = from.bytes(), cols = from.cols;
  if (!from.memory) from.memory = new_host_memory(0);
  order(Queue::kUpload, from.memory->filled_);
  Tensor t{nullptr, 0, from.dtype, from.rows, cols, cols};
  if (runs_at_once()) {
    t.memory = std::move(from.memory);
  } else {
    t.memory = allocate_bytes(bytes, Queue::kUpload);
    submit_upload(std::move(from.memory), bytes, t.memory);
  }
  t.memory->filled_ = mark(Queue::kUpload);
  return t;
}

HostTensor Backend::download(Tensor from) {
  check_inside(from);
  HostTensor host{nullptr, from.dtype, from.rows, from.cols};
  ++counters_.downloads;
  counters_.download_bytes += host.bytes();
  if (from.empty()) {
    host.memory = new_host_memory(0);
    return host;
  }
  order(Queue::kDownload, mark());
  order(Queue::kDownload, from.memory->filled_);
  // Must not be given out again before the copy is known. (Where things run at once, the last handle may be handed
  // over.)
  const std::shared_ptr<Memory> source = runs_at_once() ? nullptr : from.memory;
  host.memory = submit_download(std::move(from));
  const Event copied = mark(Queue::kDownload);
  if (source) source->read_ = copied;
  host.memory->filled_ = copied;
  return host;
}

void Backend::wait(const Event& event, std::string_view what) {
  if (host_clock_[at(event.queue)] < event.ticket) {
    ++counters_.waits;
    const TimedWait timed(counters_, trace_, what);
    await(event);
  }
  merge(host_clock_, event.clock);
}

void Backend::wait(const HostTensor& result, std::string_view what) {
  if (!result.memory) return;
  wait(result.memory->filled_, what);
  result.memory->filled_ = {};
}

void Backend::wait_all(std::string_view what) {
  for (const Queue queue : {Queue::kCompute, Queue::kUpload, Queue::kDownload}) wait(mark(queue), what);
}

}  // namespace bw::backend
