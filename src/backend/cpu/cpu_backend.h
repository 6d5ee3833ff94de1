// The CPU as a device: its memory is the host's, and everything runs at once.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/runner.h"

namespace bw::backend::cpu {

class CpuBackend final : public Backend {
 public:
  // `bf16_hardware` false: multiplies as on a processor that has none.
  CpuBackend(size_t threads, bool bf16_hardware) : runner_(threads, bf16_hardware) {}

  std::string_view name() const override { return "cpu"; }
  bool multiplies_bf16() const override { return runner_.multiplies_bf16(); }
  bool runs_at_once() const override { return true; }
  uint64_t memory_limit() const override { return 0; }

 protected:
  std::shared_ptr<Memory> new_memory(size_t bytes, Queue first) override;
  std::shared_ptr<Memory> new_host_memory(size_t bytes) override { return runner_.blocks().take(bytes); }
  std::shared_ptr<Weight> new_weight(size_t out, size_t in, Precision precision) override;
  void submit(Op op) override;
  void submit_upload(std::shared_ptr<Memory>, size_t, const std::shared_ptr<Memory>&) override {}
  std::shared_ptr<Memory> submit_download(Tensor from) override;
  void submit_record(const Event&) override {}
  void submit_wait(Queue, const Event&) override {}
  void await(const Event&) override {}

 private:
  Runner runner_;
};

}  // namespace bw::backend::cpu
