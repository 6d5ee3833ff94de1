// Runs operations on host memory, each at once, on a pool of threads. What the cpu device and the test device share.
#pragma once

#include "backend/cpu/gemm.h"
#include "backend/cpu/memory.h"
#include "backend/ops.h"

namespace bw::backend::cpu {

// Not thread-safe.
class Runner {
 public:
  // `bf16_hardware` false: multiplies as on a processor that has none.
  Runner(size_t threads, bool bf16_hardware);

  // `op` has been checked; its tensors' memory points to host memory.
  void run(const Op& op);
  // A weight for op::PackWeight to fill, and for op::Linear to read.
  std::shared_ptr<Weight> new_weight(size_t out, size_t in, Precision precision) const;

  bool multiplies_bf16() const { return bf16_hardware_; }
  BlockCache& blocks() { return *blocks_; }
  // Seconds spent in the products of linears, Hessians and factors so far.
  double linear_seconds() const { return linear_seconds_; }

 private:
  bool bf16_hardware_;
  ThreadPool pool_;
  std::shared_ptr<BlockCache> blocks_ = std::make_shared<BlockCache>();
  Gemm gemm_;
  double linear_seconds_ = 0;
};

}  // namespace bw::backend::cpu
