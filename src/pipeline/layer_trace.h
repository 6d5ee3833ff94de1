// What quantizing costs on text that is no calibration, and where that comes from: rows that are held out go along.
#pragma once

#include <vector>

#include "calib/rows.h"
#include "io/piece_file.h"
#include "model/model_dir.h"
#include "nn/decoder.h"

namespace bw::pipeline {

// The held-out rows on their way through the layers as quantized, and through those as they were. Between the layers,
// the first row as quantized branches off and goes on through the layers as they were: behind the last one it says what
// the model would say had only the layers before the branch been quantized. At most 5 branches, evenly spaced.
class LayerTrace {
 public:
  static constexpr size_t kBranches = 5;

  // `device` and `decoder` must outlive it. held_out: may be empty; then nothing is traced.
  LayerTrace(backend::Backend& device, const nn::Decoder& decoder, const model::ModelDir& dir,
             const calib::Rows& held_out);

  // Moves all through a layer (linears packed).
  void pass(size_t layer, const nn::LayerWeights& quantized, const nn::LayerWeights& original);

  // All states there are behind `done` layers, as bytes of a piece, and back again.
  size_t bytes(size_t done) const;
  void save(io::PieceWriter& piece) const;
  void restore(size_t done, io::PieceReader& piece);

  struct Branch {
    size_t quantized_layers;  // that come before it
    backend::Tensor h;        // (length, hidden), of the first row
  };
  size_t layers() const { return decoder_.config().n_layers; }
  bool is_empty() const { return batch_.sequences == 0; }
  const nn::RowBatch& batch() const { return batch_; }
  const std::vector<Branch>& branches() const { return branches_; }
  const backend::Tensor& quantized() const { return quantized_; }  // (tokens, hidden)
  const backend::Tensor& original() const { return original_; }

 private:
  std::vector<size_t> due(size_t done) const;

  backend::Backend& device_;
  const nn::Decoder& decoder_;
  nn::RowBatch batch_;
  std::vector<Branch> branches_;
  backend::Tensor quantized_, original_;
};

}  // namespace bw::pipeline
