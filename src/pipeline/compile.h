// The last stage: the output directory from the quantized layers and the tensors that stay.
#pragma once

#include <functional>

#include "io/file_lock.h"
#include "pipeline/documents.h"
#include "pipeline/output_plan.h"
#include "pipeline/session.h"

namespace bw::pipeline {

// Builds an output in OUTPUT.partial, see output_place.h.
class OutputBuilder {
 public:
  // Checks the place (check_output_path) and that no other run builds there; empties an OUTPUT.partial of ours from an
  // earlier run. Made before the expensive work, so that a place that cannot be written is known then. Throws
  // Error(kUsage or kIo); nothing is changed then.
  OutputBuilder(const model::ModelDir& dir, const std::filesystem::path& output, bool overwrite);
  // Removes what was built, unless finish() was called.
  ~OutputBuilder();
  OutputBuilder(const OutputBuilder&) = delete;
  OutputBuilder& operator=(const OutputBuilder&) = delete;

  const std::filesystem::path& output() const { return output_; }
  // Writes shards, config and side files, checks the sizes against the plan, writes the documents, and renames. layers:
  // the directory of the quantized layers' files. `complete` is called when all but the renaming is done. Returns the
  // bytes written, without those of the documents.
  uint64_t finish(Run& run, const OutputPlan& plan, const std::filesystem::path& layers,
                  const std::vector<Document>& documents, const std::function<void(uint64_t bytes)>& complete);

 private:
  void write_shard(const OutputShard& shard, const io::ShardSet* layers) const;

  const model::ModelDir& dir_;
  std::filesystem::path output_, partial_;
  std::optional<io::FileLock> lock_;
  bool owned_ = false;  // partial_ is ours to remove
};

// Throws Error(kModel) naming the first tensor, of those that are not quantized, that has a value which f16 cannot hold
// (beyond 65504, or not finite): the output stores these tensors in f16.
void check_half_range(const model::ModelDir& dir);

// Throws Error(kIo) with both figures if the disk of `output` has no room to write a directory of `bytes`.
void check_space(const std::filesystem::path& output, uint64_t bytes);

}  // namespace bw::pipeline
