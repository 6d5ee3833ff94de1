// The backend: queues are streams, tickets are events.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/runner.cuh"
#include "backend/cuda/timeline.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options);
  ~CudaBackend() override;

  std::string_view name() const override { return "cuda"; }
  bool multiplies_bf16() const override { return true; }
  bool runs_at_once() const override { return false; }
  uint64_t memory_limit() const override { return device_->memory_limit(); }

 protected:
  std::shared_ptr<Memory> new_memory(size_t bytes, Queue first) override;
  std::shared_ptr<Memory> new_host_memory(size_t bytes) override;
  std::shared_ptr<Weight> new_weight(size_t out, size_t in, Precision precision) override;
  void submit(Op op) override;
  void submit_upload(std::shared_ptr<Memory> from, size_t bytes, const std::shared_ptr<Memory>& to) override;
  std::shared_ptr<Memory> submit_download(Tensor from) override;
  void submit_record(const Event& event) override;
  void submit_wait(Queue queue, const Event& event) override;
  void await(const Event& event) override;

 private:
  struct Recorded {
    uint64_t ticket;
    cudaEvent_t event;
  };
  // Host memory that a copy uses until the event after it has passed. (The device's side is kept in order by Backend.)
  struct Copy {
    cudaEvent_t done;
    std::shared_ptr<Memory> host_side;
  };

  // Runs `work`, which enqueues in `queue` what `span` names. If it fails, the next wait tells.
  template <typename Work>
  void guarded(Queue queue, Span span, const Work& work);
  // Notes a failure for the next wait.
  template <typename Call>
  void attempt(const Call& call);
  void copy_enqueued(Queue queue, Memory& device_side, std::shared_ptr<Memory> host_side);
  // Lets go of what has run.
  void reap();
  void reap_copies(Queue queue);
  // The event of a ticket; null if it has passed, or if the device has failed.
  cudaEvent_t event_of(const Event& event) const;
  [[noreturn]] void fail(const std::string& text);

  std::shared_ptr<Device> device_;
  std::unique_ptr<Timeline> timeline_;      // null while nothing is traced
  std::deque<Recorded> recorded_[kQueues];  // oldest first, without gaps between tickets
  std::deque<Copy> copies_[kQueues];
  std::string failure_;       // of the first call that failed since the last wait
  uint64_t last_ticket_ = 0;  // of the compute queue
  // Operations that are not known to have ended: the compute queue's last ticket before each.
  std::map<std::string_view, uint64_t> running_;
  Runner runner_;
};

}  // namespace bw::backend::BW_CUDA_NAMESPACE
