// The calibration rows on their way through the model that is being quantized.
#pragma once

#include "pipeline/states.h"

namespace bw::pipeline {

// The states behind the layers as quantized, and beside them those behind the original ones.
struct Streams {
  States quantized, original;

  using Body = std::function<void(const nn::RowBatch& batch, nn::Carry& quantized, nn::Carry& original)>;
  // Calls body for every batch in order.
  void for_each(const Body& body) { quantized.for_each_with(original, body); }
};

}  // namespace bw::pipeline
