// The calibration rows on their way through the model that is being quantized.
#pragma once

#include <functional>
#include <optional>

#include "pipeline/states.h"

namespace bw::pipeline {

// The states behind the layers as quantized, and beside them those behind the original ones, where these are wanted.
struct Streams {
  States quantized;
  std::optional<States> original;

  using Body = std::function<void(const nn::RowBatch& batch, nn::Carry& carry, nn::Carry* original)>;
  // Calls body for every batch in order; `original` is null without that stream.
  void for_each(const Body& body) {
    const auto alone = [&](const nn::RowBatch& batch, nn::Carry& carry) { body(batch, carry, nullptr); };
    const auto both = [&](const nn::RowBatch& batch, nn::Carry& carry, nn::Carry& other) {
      body(batch, carry, &other);
    };
    original ? quantized.for_each_with(*original, both) : quantized.for_each(alone);
  }
};

}  // namespace bw::pipeline
