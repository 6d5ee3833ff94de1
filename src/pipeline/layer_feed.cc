#include "pipeline/layer_feed.h"

#include <fmt/format.h>

namespace bw::pipeline {

LayerFeed::LayerFeed(Run& run, const model::ModelDir& dir, const nn::Decoder& decoder,
                     const nn::Decoder::LinearLoader& load, std::string job, Order order, size_t done)
    : run_(run), dir_(dir), decoder_(decoder), load_(load), job_(std::move(job)), order_(order), next_(done) {}

nn::LayerWeights LayerFeed::load() {
  const size_t layer = layer_at(next_);
  if (kept_) return std::move((*kept_)[layer]);
  dir_.prefetch_layer(layer);
  const StageClock::Span span(run_.clock, job_ + ": load");
  return decoder_.load_layer(dir_, layer, load_);
}

nn::LayerWeights LayerFeed::next() {
  if (const backend::Trace* trace = run_.device->trace()) trace_begin_ns_ = trace->now();
  nn::LayerWeights weights = ahead_ ? std::move(*ahead_) : load();
  ahead_.reset();
  ++next_;
  return weights;
}

void LayerFeed::all_enqueued() {
  const size_t layer = layer_at(next_ - 1);
  dir_.release_layer(layer);
  if (backend::Trace* trace = run_.device->trace()) {
    trace->add({"layers", fmt::format("{}: layer {}", job_, layer), trace_begin_ns_, trace->now()});
  }
  if (run_.device->runs_at_once()) return;
  const backend::Event done = run_.device->mark();
  if (next_ < dir_.config().n_layers) ahead_ = load();
  const StageClock::Span span(run_.clock, job_ + ": wait for the device");
  run_.device->wait(before_, "layer");
  before_ = done;
}

}  // namespace bw::pipeline
