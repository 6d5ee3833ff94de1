// Where the divergence comes from: what the first layers alone cost, measured while a model is being quantized.
#pragma once

#include <vector>

#include "calib/rows.h"
#include "eval/statistics.h"
#include "io/piece_file.h"
#include "nn/decoder.h"

namespace bw::pipeline {

// Between the layers, the first tokens of the quantized stream branch off and go on through the layers as they were:
// behind the last one they say what the model would say had only the layers before the branch been quantized. At most
// 8 branches, evenly spaced, of at most 512 tokens each: about one more row of them on the way through the model.
class LayerTrace {
 public:
  static constexpr size_t kBranches = 8, kTokens = 512;

  // Both must outlive it. length: of the rows.
  LayerTrace(backend::Backend& device, const nn::Decoder& decoder, size_t length);

  // Moves the branches through a layer as it was (linears packed).
  void pass(size_t layer, const nn::LayerWeights& original);
  // h (tokens, hidden): the residual stream of the first row behind `layer` as quantized. A branch, if one is due here.
  void quantized(size_t layer, const backend::Tensor& h);

  // Of the branches that there are once `done` layers are quantized, as bytes of a piece, and back again.
  size_t bytes(size_t done) const;
  void save(io::PieceWriter& piece) const;
  void restore(size_t done, io::PieceReader& piece);

  struct Branch {
    size_t quantized_layers;  // that come before it
    backend::Tensor h;        // (tokens(), hidden)
  };
  const std::vector<Branch>& branches() const { return branches_; }
  // Of one branch.
  size_t tokens() const { return batch_.length; }

 private:
  std::vector<size_t> due(size_t done) const;

  backend::Backend& device_;
  const nn::Decoder& decoder_;
  nn::RowBatch batch_;
  std::vector<Branch> branches_;
};

}  // namespace bw::pipeline
