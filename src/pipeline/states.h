// Hidden states of all calibration or evaluation tokens, between layers.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "io/file_write.h"
#include "io/piece_file.h"
#include "nn/decoder.h"

namespace bw::pipeline {

// Where states are while no batch of them is worked on.
struct StatesPlace {
  bool on_device = true;          // else at home, on the host
  std::filesystem::path scratch;  // at home: a directory for a file of them; empty: in memory
};

// In batches of whole rows. They stay on the device, or, where they do not fit, at home: then each batch is fetched
// while the one before is worked on, and brought back while the next one is (to a file: before the next one is).
class States {
 public:
  // `device` must outlive it.
  States(backend::Backend& device, StatesPlace place);

  // h: (batch.tokens(), hidden)
  void add(const nn::RowBatch& batch, backend::Tensor h);

  size_t count() const { return entries_.size(); }
  const nn::RowBatch& batch(size_t i) const { return entries_[i].batch; }
  size_t tokens() const { return tokens_; }
  bool on_device() const { return place_.on_device; }
  const StatesPlace& place() const { return place_; }
  // Of all residual streams, as they are saved.
  size_t bytes() const { return bytes_; }

  // Calls body for every batch in order; what it leaves in the carry is kept. On the host's side of a device that has
  // them at home it waits for nothing; else once for each batch, for the one before the last, so that the device never
  // holds more than a few.
  void for_each(const std::function<void(const nn::RowBatch& batch, nn::Carry& carry)>& body);
  // The same for two states of the same rows side by side.
  void for_each_with(States& other,
                     const std::function<void(const nn::RowBatch& batch, nn::Carry& carry, nn::Carry& others)>& body);
  // Writes the residual streams of all batches (a carry's x is not kept: a layer makes it anew), and puts back what was
  // written from states of the same rows.
  void save(io::PieceWriter& piece);
  void restore(io::PieceReader& piece);
  // The residual stream of batch i, which is given up.
  backend::Tensor take(size_t i);

 private:
  // A tensor at home.
  struct Home {
    backend::HostTensor values;       // empty in a file
    size_t rows = 0, cols = 0;        // 0: there is none
    uint64_t at = 0, room_bytes = 0;  // in the file
  };
  struct Entry {
    nn::RowBatch batch;
    nn::Carry carry;  // on the device; empty while the states are at home
    Home h, x;
  };

  void fetch(size_t i);
  void bring_home(size_t i);
  backend::Tensor fetch(Home& home);
  void bring_home(backend::Tensor values, Home& home);
  // for_each of this and of `other` (null: none) with the number of the batch.
  void walk(States* other, const std::function<void(size_t)>& body);

  backend::Backend& device_;
  StatesPlace place_;
  std::unique_ptr<io::ScratchFile> file_;
  uint64_t file_bytes_ = 0;
  std::vector<Entry> entries_;
  size_t tokens_ = 0, bytes_ = 0;
};

}  // namespace bw::pipeline
