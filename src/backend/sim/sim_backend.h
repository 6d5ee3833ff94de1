// A device for tests: the numbers of the CPU, the manners of a device that is far away.
//
// Device memory lies at an address that faults when the host touches it, fresh memory is poisoned, each queue is a
// thread that may be slowed down, copies are copies, and work that no event orders is found when it is enqueued. So
// host code that would go wrong on a real device, sometimes, goes wrong here, always. A timeline tells how long the
// work would take on a device of given speeds.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/runner.h"
#include "backend/sim/hazard_checker.h"
#include "backend/sim/memory.h"
#include "backend/sim/queues.h"
#include "backend/sim/timeline.h"

namespace bw::backend::sim {

struct SimOptions {
  size_t threads = 0;  // 0: one per core
  bool bf16_hardware = cpu::cpu_multiplies_bf16();
  uint64_t memory_limit = 0;  // bytes; 0: none

  // By which the queues' threads really are slower.
  std::chrono::nanoseconds launch_delay{0};  // each operation
  std::chrono::nanoseconds copy_delay{0};    // each copy
  double copy_bytes_per_second = 0;          // 0: no delay for size

  bool forget_waits = false;  // queues do not wait for each other, as if a backend had forgotten to make them
  SimModel model;
};

class SimBackend final : public Backend {
 public:
  explicit SimBackend(const SimOptions& options);

  std::string_view name() const override { return "sim"; }
  bool multiplies_bf16() const override { return runner_.multiplies_bf16(); }
  bool runs_at_once() const override { return false; }
  uint64_t memory_limit() const override { return account_->limit(); }

  // How long all that has been enqueued so far takes by SimOptions::model. The same in every run.
  SimTimeline timeline() const { return timeline_.now(); }

 protected:
  std::shared_ptr<Memory> new_memory(size_t bytes, Queue first) override;
  std::shared_ptr<Memory> new_host_memory(size_t bytes) override;
  std::shared_ptr<Weight> new_weight(size_t out, size_t in, Precision precision) override;
  void submit(Op op) override;
  void submit_upload(std::shared_ptr<Memory> from, size_t bytes, const std::shared_ptr<Memory>& to) override;
  void submit_reuse(const std::shared_ptr<Memory>& memory, Queue queue) override;
  std::shared_ptr<Memory> submit_download(Tensor from) override;
  void submit_record(const Event& event) override;
  void submit_wait(Queue queue, const Event& event) override;
  void await(const Event& event) override;

 private:
  DeviceMemory& own(Memory& memory) const;
  const SimWeight& own(const Weight& weight) const;
  // Checks an operation for hazards and turns its operands to the device's side. Returns their size in bytes.
  uint64_t translate(Op& op);
  void enqueue_copy(Queue queue, uint64_t bytes, Queues::Work work);
  // `span`: its name, bytes and flops.
  void enqueue_timed(Queue queue, std::chrono::nanoseconds delay, Span span, Queues::Work work);

  SimOptions options_;
  cpu::Runner runner_;
  std::shared_ptr<Account> account_;
  HazardChecker hazards_;
  Timeline timeline_;
  std::vector<std::weak_ptr<HostMemory>> downloads_;  // that the host has not waited for
  Queues queues_;                                     // last: its threads use the rest
};

std::unique_ptr<Backend> make_sim_backend(const SimOptions& options);

}  // namespace bw::backend::sim
