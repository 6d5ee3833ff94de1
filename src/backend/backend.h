// The device interface. A device is far away: operations and copies are enqueued and never waited for; what the host
// wants to see it downloads, and waits for once, by name and counted. What the pipeline may assume is only what stands
// here and in ops.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/counters.h"
#include "backend/ops.h"
#include "backend/pool.h"
#include "backend/tensor.h"
#include "backend/trace.h"

namespace bw::backend {

// Thrown by Backend::new_memory when the device has no room left.
struct OutOfDeviceMemory {
  std::string found;  // "3.2 GB of 4 GB are in use"
};

// One device with a queue for operations and one for the copies of each direction. Operations and copies run in the
// order of enqueueing as far as they touch the same memory: the backend makes queues wait for each other, the host is
// not involved. Not thread-safe: one thread enqueues.
//
// Backends implement the protected functions; the public ones check, count, order and trace for all of them.
class Backend {
 public:
  Backend();
  virtual ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual std::string_view name() const = 0;
  virtual bool multiplies_bf16() const = 0;  // in hardware
  // True if calls return when their work is done: then nothing is gained by fetching ahead.
  virtual bool runs_at_once() const = 0;
  // Bytes of device memory that may be used; 0: as much as the system gives.
  virtual uint64_t memory_limit() const = 0;

  const Counters& counters() const { return counters_; }
  // Records spans of operations, copies and waits from now on; null: none. Must outlive the backend.
  void trace_to(Trace* trace) { trace_ = trace; }
  Trace* trace() const { return trace_; }

  // Device memory, contents undefined; it goes with its last handle, though operations before may still use it, and
  // must not outlive the backend. Where there is no room, waits for what runs, tries again, and throws Error(kIo) with
  // what is needed and what there is.
  Tensor allocate(size_t rows, size_t cols, DType dtype = DType::kF32);
  // The same, filled with zeros: what sums are accumulated in. f32, f64 or i32.
  Tensor zeros(size_t rows, size_t cols, DType dtype = DType::kF32);
  void enqueue(Op op);
  // w (out, in) float, which may go afterwards.
  std::shared_ptr<const Weight> pack_weight(const Tensor& w, Precision precision);

  // Host memory to be filled and uploaded, contents undefined.
  HostTensor stage(size_t rows, size_t cols, DType dtype = DType::kF32);
  // Enqueues a copy to new device memory. The host gives its side up.
  Tensor upload(HostTensor from);
  template <typename T>
  Tensor upload(std::span<const T> data, size_t rows, size_t cols) {
    HostTensor staged = stage(rows, cols, DTypeOf<T>::value);
    const std::span<T> to = staged.as<T>();
    BW_CHECK(data.size() == to.size());
    std::copy(data.begin(), data.end(), to.begin());
    return upload(std::move(staged));
  }
  // Enqueues a copy to new host memory, dense. A tensor moved in whole, with its last handle, may be handed over
  // without a copy. The result may be uploaded again at once; before the host looks at it, it must be waited for.
  HostTensor download(Tensor from);

  // What has been enqueued so far for computing.
  Event mark();
  // The host waits until `event` has passed. `what` names the reason in traces. Throws what an operation before it has
  // failed with.
  void wait(const Event& event, std::string_view what);
  // Until `result` has been copied.
  void wait(const HostTensor& result, std::string_view what);
  // Until all queues are empty.
  void wait_all(std::string_view what);
  // Downloads and waits.
  template <typename T>
  std::vector<T> read(const Tensor& from, std::string_view what) {
    const HostTensor result = download(from);
    wait(result, what);
    const auto data = result.as<T>();
    return {data.begin(), data.end()};
  }

 protected:
  // At least `bytes` of memory, which `first` will touch first, or throws OutOfDeviceMemory. It is let go of only when
  // no queue needs it any more as far as the public functions know, or for want of memory: the backend then frees it in
  // the order of the queues.
  virtual std::shared_ptr<Memory> new_memory(size_t bytes, Queue first) = 0;
  // Memory is about to be used for something new, by the queue named; what was enqueued before may still use it.
  virtual void submit_reuse(const std::shared_ptr<Memory>& memory, Queue queue) {
    static_cast<void>(memory), static_cast<void>(queue);
  }
  virtual std::shared_ptr<Memory> new_host_memory(size_t bytes) = 0;
  // A weight for op::PackWeight to fill.
  virtual std::shared_ptr<Weight> new_weight(size_t out, size_t in, Precision precision) = 0;
  // Checked operation, to be run after all before it in the compute queue. It keeps its operands' memory alive.
  virtual void submit(Op op) = 0;
  // Copies `bytes` in the upload queue. Never called for a device that runs at once: its memory is the host's, and
  // staged memory becomes device memory without a copy.
  virtual void submit_upload(std::shared_ptr<Memory> from, size_t bytes, const std::shared_ptr<Memory>& to) = 0;
  // Copies to new host memory, dense, in the download queue. May hand the memory over if `from` is its only handle,
  // whole and dense.
  virtual std::shared_ptr<Memory> submit_download(Tensor from) = 0;
  // event.ticket, higher than those before it, stands for all that has been enqueued in event.queue so far.
  virtual void submit_record(const Event& event) = 0;
  // `queue` goes on only when `event`, of another queue, has passed.
  virtual void submit_wait(Queue queue, const Event& event) = 0;
  // The host waits.
  virtual void await(const Event& event) = 0;

  Counters counters_;
  Trace* trace_ = nullptr;

 private:
  Event mark(Queue queue);
  // Makes the compute queue wait for the copies that an operation's access to the memory must come after.
  void settle(Memory& memory, Access access);
  void order(Queue queue, const Event& event);
  std::shared_ptr<Memory> allocate_bytes(size_t bytes, Queue first);
  // Memory of the pool that `first` may use at once, or, with `wait`, when another queue is done with it; null if there
  // is none.
  std::shared_ptr<Memory> reuse_memory(size_t bytes, Queue first, bool wait);
  bool has_passed(const Event& event, Queue queue) const;

  Clock tickets_{};                      // the last given out, for each queue
  std::array<Clock, kQueues> clocks_{};  // what each queue knows to have run when it gets to its end
  Clock host_clock_{};                   // what the host knows to have run
  std::shared_ptr<MemoryPool> pool_;     // null where memory is the host's
  Event last_mark_;                      // of computing
  uint64_t launches_at_mark_ = 0;
};

// Size in bytes of a tensor's elements, from the first to the last, gaps between rows included.
size_t extent_bytes(const Tensor& t);

// The CPU. `threads` 0: one per core. Results do not depend on it.
std::unique_ptr<Backend> make_cpu_backend(size_t threads = 0);

}  // namespace bw::backend
