#include "pipeline/layer_quantizer.h"

#include <algorithm>

#include "pipeline/token_weights.h"
#include "quant/gptq.h"
#include "quant/refine.h"

namespace bw::pipeline {

using backend::Tensor;
namespace op = backend::op;

namespace {

// Tokens whose disturbance exists at once: many enough for full speed, few enough to keep it small.
constexpr size_t kDisturbanceTokens = 2048;
// Tokens for each input, about, that the disturbance is summed over where there are more: what inputs are off by is
// small, and so is what more tokens would tell of it (docs/quality.md).
constexpr size_t kDisturbanceTokensPerInput = 32;

}  // namespace

RoundingEffort rounding_effort(Effort effort) {
  switch (effort) {
    case Effort::kFast:
      return {0, false};
    case Effort::kNormal:
      return {2, true};
    case Effort::kBest:
      return {8, true};
  }
  BW_CHECK(!"known effort");
  return {};
}

PendingLinears LayerQuantizer::enqueue_layer(size_t layer, nn::LayerWeights weights, Streams& streams) {
  PendingLinears pending;
  const Tensor token_weight = upload_site_weights(layer, streams.quantized.tokens());
  nn::LayerWeights original = weights;
  decoder_.pack(original, false);
  for (size_t site = 0; site < nn::kSites; ++site) {
    const SiteSums sums = reach_site(layer, site, weights, original, token_weight.cols_slice(site, 1), streams);
    const auto kinds = nn::site_linears(site);
    quant::Factor factor;
    if (!sums.hessian.empty()) {
      factor =
          factorize(dir_.reference_name(dir_.linear(layer, kinds[0]).key), sums.hessian, effort_.sweeps > 0, pending);
    }
    for (const model::LinearKind kind : kinds) {
      const model::LinearInfo info = dir_.linear(layer, kind);
      Tensor w = std::exchange(weights.raw[static_cast<size_t>(kind)], {});
      w = is_quantized(info)
              ? quant::dequantize(device_, quantize_linear(info, std::move(w), sums, factor, effort_.sweeps, pending))
              : as_half(std::move(w));
      const StageClock::Span span(run_.clock, "quantize: forward");
      weights.linears[static_cast<size_t>(kind)] = decoder_.pack(w);
    }
  }
  const StageClock::Span span(run_.clock, "quantize: forward");
  streams.for_each([&](const nn::RowBatch& batch, nn::Carry& carry, nn::Carry& other) {
    decoder_.advance(weights, layer, nn::kSites - 1, batch, carry);
    decoder_.advance(original, layer, nn::kSites - 1, batch, other);
    watchers_.range.see(layer, carry, other);
  });
  watchers_.trace.pass(layer, weights, original);
  return pending;
}

std::pair<PendingLinears, Tensor> LayerQuantizer::enqueue_head(Streams& streams) {
  const Tensor norm = decoder_.load_final_norm(dir_);
  const Tensor weight = upload_head_weights(streams.quantized.tokens());
  SiteSums sums = empty_sums(dir_.config().hidden, 0);
  streams.for_each([&](const nn::RowBatch&, nn::Carry& carry, nn::Carry& other) {
    const StageClock::Span span(run_.clock, "quantize: Hessians");
    add_batch(weight, decoder_.normed(carry.h, norm), decoder_.normed(other.h, norm), {}, sums);
  });
  PendingLinears pending;
  const model::LinearInfo head = dir_.head();
  // Refinement would take two more copies of the head, for little at its usual bits.
  const quant::Factor factor = factorize(dir_.reference_name(head.key), sums.hessian, false, pending);
  const quant::QuantizedLinear q = quantize_linear(head, linear_loader(dir_, device_)(head), sums, factor, 0, pending);
  return {std::move(pending), quant::dequantize(device_, q)};
}

bool LayerQuantizer::is_quantized(const model::LinearInfo& info) const {
  return plan_.layouts.contains(dir_.reference_name(info.key));
}

LayerQuantizer::SiteSums LayerQuantizer::empty_sums(size_t in, size_t out) {
  SiteSums sums{device_.zeros(in, in), {}};
  (out == 0 ? sums.disturbance.inputs : sums.disturbance.outputs) = device_.zeros(out == 0 ? in : out, in);
  return sums;
}

size_t LayerQuantizer::disturbed_share(size_t in) const {
  return std::max<size_t>(1, tokens_ / (kDisturbanceTokensPerInput * in));
}

void LayerQuantizer::add_batch(const Tensor& weight, const Tensor& x, const Tensor& original_x, const Missing& missing,
                               SiteSums& sums) {
  const Tensor of_batch = weight.rows_slice(sums.tokens, x.rows);
  device_.enqueue(op::AccumulateGram{x, of_batch, sums.hessian, run_.precision});
  sums.tokens += x.rows;
  if (sums.batches++ % disturbed_share(x.cols) == 0) {
    add_disturbance(of_batch, x, original_x, missing, sums.disturbance);
    sums.disturbed_tokens += x.rows;
  }
  sums.disturbance.scale = static_cast<float>(sums.tokens) / static_cast<float>(sums.disturbed_tokens);
}

void LayerQuantizer::add_disturbance(const Tensor& weight, const Tensor& x, const Tensor& original_x,
                                     const Missing& missing, quant::Disturbance& disturbance) {
  for (size_t first = 0; first < x.rows; first += kDisturbanceTokens) {
    const size_t count = std::min(kDisturbanceTokens, x.rows - first);
    const auto part = [&](const Tensor& t) { return t.rows_slice(first, count); };
    const Tensor change = device_.allocate(count, x.cols);
    device_.enqueue(op::WeightedDifference{part(original_x), part(x), part(weight), change});
    if (!disturbance.inputs.empty()) {
      device_.enqueue(op::Gemm{change, true, part(x), false, disturbance.inputs, 1.0f, 1.0f, run_.precision});
      continue;
    }
    const Tensor outputs = device_.allocate(count, disturbance.outputs.rows);
    if (missing.sum) {
      const auto& [original, disturbed] = *missing.sum;
      device_.enqueue(op::WeightedDifference{part(original), part(disturbed), part(weight), outputs});
    }
    device_.enqueue(op::Linear{change, missing.linear, {}, outputs, missing.sum.has_value()});
    device_.enqueue(op::Gemm{outputs, true, part(x), false, disturbance.outputs, 1.0f, 1.0f, run_.precision});
  }
}

// (tokens, kSites) what each token counts at each site.
Tensor LayerQuantizer::upload_site_weights(size_t layer, size_t tokens) {
  Matrix<float> weights(tokens, nn::kSites);
  for (size_t site = 0; site < nn::kSites; ++site) {
    std::vector<float> of_site(tokens, 1.0f);
    if (effort_.weighs_tokens) {
      std::vector<size_t> columns;
      for (const model::LinearKind kind : nn::site_linears(site)) columns.push_back(static_cast<size_t>(kind));
      of_site = token_weights(gains_.layers[layer], columns);
    }
    BW_CHECK(of_site.size() == tokens);
    for (size_t t = 0; t < tokens; ++t) weights(t, site) = of_site[t];
  }
  return device_.upload(std::as_const(weights).span(), weights.rows(), weights.cols());
}

// (tokens, 1)
Tensor LayerQuantizer::upload_head_weights(size_t tokens) {
  const size_t only = 0;
  const std::vector<float> weights =
      effort_.weighs_tokens ? token_weights(gains_.head, {&only, 1}) : std::vector<float>(tokens, 1.0f);
  BW_CHECK(weights.size() == tokens);
  return device_.upload(std::span<const float>(weights), tokens, 1);
}

// Moves the streams to the site and sums what its linears are quantized with.
LayerQuantizer::SiteSums LayerQuantizer::reach_site(size_t layer, size_t site, const nn::LayerWeights& weights,
                                                    const nn::LayerWeights& original, const Tensor& token_weight,
                                                    Streams& streams) {
  const auto kinds = nn::site_linears(site);
  const model::LinearInfo info = dir_.linear(layer, kinds[0]);
  const bool alone = kinds.size() == 1;
  // A norm between the output and the stream it is added to would have to be undone: then only the inputs are
  // corrected.
  const bool adds = alone && (site == 1 ? weights.attention_out_norm : weights.mlp_out_norm).empty();
  SiteSums sums = is_quantized(info) ? empty_sums(info.in, alone ? info.out : 0) : SiteSums{};
  streams.for_each([&](const nn::RowBatch& batch, nn::Carry& carry, nn::Carry& other) {
    const auto reach = [&](const nn::LayerWeights& w, nn::Carry& c) {
      const StageClock::Span span(run_.clock, "quantize: forward");
      if (site == 0) decoder_.begin(w, c);
      if (site > 0) decoder_.advance(w, layer, site - 1, batch, c);
    };
    reach(weights, carry);
    reach(original, other);
    watchers_.range.see(layer, carry, other);
    const StageClock::Span span(run_.clock, "quantize: Hessians");
    if (sums.hessian.empty()) return;
    Missing missing{original.linears[static_cast<size_t>(kinds[0])], {}};
    if (adds) missing.sum = {other.h, carry.h};
    add_batch(token_weight, carry.x, other.x, missing, sums);
  });
  return sums;
}

quant::Factor LayerQuantizer::factorize(const std::string& key, const Tensor& hessian, bool keep_hessian,
                                        PendingLinears& pending) {
  const StageClock::Span span(run_.clock, "quantize: factors");
  const float damping = quant::damping_for(hessian.rows, tokens_);
  quant::Factor factor = quant::factorize(device_, hessian, damping, keep_hessian);
  pending.factors.push_back({key, damping, device_.download(factor.status)});
  return factor;
}

// Quantizes w (out, in) and appends its tensors.
quant::QuantizedLinear LayerQuantizer::quantize_linear(const model::LinearInfo& info, Tensor w, const SiteSums& sums,
                                                       const quant::Factor& factor, int sweeps,
                                                       PendingLinears& pending) {
  const std::string key = dir_.reference_name(info.key);
  const Tensor rows = quant::transposed_in_order(device_, w, factor.order);
  {
    const StageClock::Span span(run_.clock, "quantize: targets");
    quant::correct_target(device_, rows, w, sums.disturbance, factor, kCorrection);
  }
  w = {};
  Tensor target;
  if (sweeps > 0) {
    target = device_.allocate(rows.rows, rows.cols);
    device_.enqueue(op::Copy{rows, target});
  }
  quant::QuantizedLinear q = [&] {
    const StageClock::Span span(run_.clock, "quantize: GPTQ");
    return quant::quantize_gptq(device_, rows, static_cast<uint32_t>(info.out), factor, plan_.layouts.at(key));
  }();
  {
    const StageClock::Span span(run_.clock, "quantize: refinement");
    quant::refine(device_, target, factor, q, sweeps);
  }
  const StageClock::Span span(run_.clock, "quantize: pack and verify");
  pending.linears.emplace_back(key, codec::pack(device_, q));
  return q;
}

// The weights as a loader of f16 tensors will see them (check_half_range saw that they fit).
Tensor LayerQuantizer::as_half(Tensor w) {
  const Tensor half = device_.allocate(w.rows, w.cols, backend::DType::kF16);
  device_.enqueue(op::Copy{w, half});
  device_.enqueue(op::Copy{half, w});
  return w;
}

}  // namespace bw::pipeline
