#include "pipeline/state_range.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/half.h"

namespace bw::pipeline {
namespace {

namespace op = backend::op;

constexpr size_t kStreams = 2;

// Of one stream.
struct Excess {
  size_t first_layer = 0;
  float largest = 0;  // 0: all is within f16
};

Excess excess_of(const std::vector<float>& largest, size_t stream) {
  Excess excess;
  for (size_t i = stream; i < largest.size(); i += kStreams) {
    if (largest[i] <= kLargestHalf) continue;
    if (excess.largest == 0) excess.first_layer = i / kStreams;
    excess.largest = std::max(excess.largest, largest[i]);
  }
  return excess;
}

}  // namespace

StateRange::StateRange(backend::Backend& device, const model::ModelConfig& config)
    : device_(device), sees_residual_(!config.post_norms), largest_(device.zeros(config.n_layers, kStreams)) {}

void StateRange::see(size_t layer, const nn::Carry& quantized, const nn::Carry& original) {
  size_t stream = 0;
  for (const nn::Carry* carry : {&quantized, &original}) {
    const backend::Tensor largest = largest_.rows_slice(layer, 1).cols_slice(stream++, 1);
    if (sees_residual_) device_.enqueue(op::LargestMagnitude{carry->h, largest});
    if (!carry->x.empty()) device_.enqueue(op::LargestMagnitude{carry->x, largest});
  }
}

std::vector<float> StateRange::read() const { return device_.read<float>(largest_, "range of states"); }

void StateRange::save(io::PieceWriter& piece) const {
  const std::vector<float> largest = read();
  piece.write_values(std::span(largest));
}

void StateRange::restore(io::PieceReader& piece) {
  backend::HostTensor largest = device_.stage(largest_.rows, largest_.cols);
  piece.read_values(largest.raw());
  largest_ = device_.upload(std::move(largest));
}

void StateRange::tell(Reporter& reporter) const {
  const std::vector<float> largest = read();
  const Excess quantized = excess_of(largest, 0), original = excess_of(largest, 1);
  if (quantized.largest == 0 && original.largest == 0) return;
  const auto describe = [](const Excess& e) {
    return e.largest == 0 ? std::string("do not")
                          : fmt::format("reach {:.3g}, from layer {} on", e.largest, e.first_layer);
  };
  reporter.warn("quantize",
                fmt::format("states beyond what f16 holds, {}: the original's {}, the quantized model's {}; "
                            "loaders that compute in f16, as ExLlamaV2 does, overflow or clamp there",
                            kLargestHalf, describe(original), describe(quantized)));
}

}  // namespace bw::pipeline
