// The layers' weights, one after the other, on their way to the device.
#pragma once

#include <optional>
#include <string>

#include "pipeline/session.h"

namespace bw::pipeline {

// On a device that does not run at once, the next layer is read, converted and copied while the device works on the
// last one, and the host is never more than two layers ahead.
class LayerFeed {
 public:
  enum class Order { kForward, kBackward };
  // `job` is the first word of its stages' names. `done`: layers at the beginning of the order that are not wanted any
  // more. All must outlive it.
  LayerFeed(Run& run, const model::ModelDir& dir, const nn::Decoder& decoder, const nn::Decoder::LinearLoader& load,
            std::string job, Order order = Order::kForward, size_t done = 0);

  // Layers that are on the device already, by number: next() gives these away instead of loading. Must outlive it.
  void take_from(std::vector<nn::LayerWeights>& kept) { kept_ = &kept; }

  // Weights of the next layer, linears raw.
  nn::LayerWeights next();
  // To be called when all work on the layer that next() gave has been enqueued.
  void all_enqueued();

 private:
  nn::LayerWeights load();
  size_t layer_at(size_t place) const { return order_ == Order::kForward ? place : dir_.config().n_layers - 1 - place; }

  Run& run_;
  const model::ModelDir& dir_;
  const nn::Decoder& decoder_;
  const nn::Decoder::LinearLoader& load_;
  std::string job_;
  Order order_;
  size_t next_;  // place in the order of the layer that next() gives
  std::vector<nn::LayerWeights>* kept_ = nullptr;
  std::optional<nn::LayerWeights> ahead_;
  backend::Event before_;  // the end of the layer before the last
  int64_t trace_begin_ns_ = 0;
};

}  // namespace bw::pipeline
