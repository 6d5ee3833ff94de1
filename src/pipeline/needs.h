// What a job takes of memory and disk, told before it begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitwright/options.h"
#include "model/config.h"

namespace bw::pipeline {

struct JobShape {
  size_t rows = 0, length = 0;         // of calibration
  bool self_calibrated = false;        // the model writes the rows itself
  bool quantizes = false;              // false: measures alone
  bool packs_bf16 = false;             // weights are multiplied as bfloat16
  bool states_on_disk = false;         // those of all rows, but for the batches that are worked on
  bool on_host = true;                 // the device's memory is the host's
  uint64_t device_limit = 0;           // bytes of a device with memory of its own; 0: no limit
  std::vector<uint64_t> output_bytes;  // of the directory of each target
};

struct JobNeeds {
  std::vector<StageNeed> stages;  // in the order of the job
  uint64_t device_bytes = 0;      // 0: the device's memory is the host's
  uint64_t disk_bytes = 0;        // most that outputs and work folder take at any time

  // The stage that needs most; there is at least one.
  const StageNeed& peak() const;
};

// An upper estimate within about a tenth (docs/performance.md has the terms). Pages of the mapped tensor files come on
// top: the system takes them away when it needs them. vocab_rows: of the embedding.
JobNeeds needs_of(const model::ModelConfig& config, size_t vocab_rows, const JobShape& shape);

// What this process may use: of the machine's memory, its limit of address space and its control group, the least.
struct MemoryThere {
  uint64_t bytes = 0;
  std::string limit;  // what sets it; empty: it is the machine's own memory, which swap space can add to
};
MemoryThere memory_there();

}  // namespace bw::pipeline
