// What every layer read on the way forward, kept on disk for the way back.
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"
#include "pipeline/job_dir.h"

namespace bw::pipeline {

// A piece for each layer: (tokens, hidden) bfloat16, token after token.
class LayerInputs {
 public:
  // All must outlive it. key: of everything that the inputs depend on.
  LayerInputs(backend::Backend& device, const JobDir& job, std::string key, size_t tokens, size_t hidden)
      : device_(device), job_(job), key_(std::move(key)), tokens_(tokens), hidden_(hidden) {}

  // Takes the inputs of one layer: downloads of consecutive tokens, waited for when they are added. Sealed, it has been
  // kept.
  class Keeper {
   public:
    // inputs must outlive it.
    Keeper(const LayerInputs& inputs, size_t layer);
    void add(const backend::HostTensor& part);
    void seal() { piece_.seal(inputs_.key_); }

   private:
    const LayerInputs& inputs_;
    io::PieceWriter piece_;
  };
  // The same for downloads that are perhaps still on their way, all of the layer's.
  void keep(size_t layer, const std::vector<backend::HostTensor>& parts) const;
  // Whether the layers before `end` have been kept, by this run or an earlier one. Damaged ones are removed.
  bool has_until(size_t end) const;
  // Tokens [first, first + count) of a layer that has been kept. (count, hidden) bfloat16.
  backend::HostTensor read(size_t layer, size_t first, size_t count) const;
  void discard(size_t layers) const;

 private:
  backend::Backend& device_;
  const JobDir& job_;
  std::string key_;
  size_t tokens_, hidden_;
};

}  // namespace bw::pipeline
