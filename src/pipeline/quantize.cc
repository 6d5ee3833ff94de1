#include "pipeline/quantize.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "codec/exl2.h"
#include "pipeline/layer_feed.h"
#include "quant/factor.h"
#include "quant/gptq.h"

namespace bw::pipeline {
namespace {

using backend::HostTensor;
using backend::Tensor;
namespace op = backend::op;

constexpr float kDamping = 0.1f;  // of mean(diag H); docs/quality.md has the figures

// Linears of one file whose codes are on their way to the host.
struct PendingLinears {
  std::vector<std::pair<std::string, codec::PackedLinear>> linears;  // key, tensors
  std::vector<std::pair<std::string, HostTensor>> statuses;          // of factors: where, Factor::status
};

class LayerQuantizer {
 public:
  LayerQuantizer(Run& run, const model::ModelDir& dir, const nn::Decoder& decoder, const OutputPlan& plan)
      : run_(run), device_(*run.device), dir_(dir), decoder_(decoder), plan_(plan) {}

  // Enqueues the quantization of the layer's linears, site by site, and the move of the states through the quantized
  // layer.
  PendingLinears enqueue_layer(size_t layer, nn::LayerWeights weights, States& states) {
    PendingLinears pending;
    for (size_t site = 0; site < nn::kSites; ++site) {
      const Tensor hessian = reach_site(layer, site, weights, states);
      const std::string where = fmt::format("layer {}, input {}", layer, site);
      const quant::Factor factor = hessian.empty() ? quant::Factor{} : site_factor(hessian, where, pending);
      for (const model::LinearKind kind : nn::site_linears(site)) {
        const size_t i = static_cast<size_t>(kind);
        const Tensor w = as_stored(dir_.linear(layer, kind), std::move(weights.raw[i]), factor, pending);
        weights.raw[i] = {};
        const StageClock::Span span(run_.clock, "quantize: forward");
        weights.linears[i] = decoder_.pack(w);
      }
    }
    const StageClock::Span span(run_.clock, "quantize: forward");
    states.for_each([&](const nn::RowBatch& batch, nn::Carry& carry) {
      decoder_.advance(weights, layer, nn::kSites - 1, batch, carry);
    });
    return pending;
  }

  // The head reads the final norm of the states.
  PendingLinears enqueue_head(States& states) {
    const Tensor norm = decoder_.load_final_norm(dir_);
    const Tensor hessian = zeros(dir_.config().hidden);
    states.for_each([&](const nn::RowBatch&, nn::Carry& carry) {
      const StageClock::Span span(run_.clock, "quantize: Hessians");
      const Tensor x = device_.allocate(carry.h.rows, carry.h.cols);
      device_.enqueue(op::RmsNorm{carry.h, norm, dir_.config().norm_eps, x});
      device_.enqueue(op::AccumulateGram{x, {}, hessian, run_.precision});
    });
    PendingLinears pending;
    const quant::Factor factor = site_factor(hessian, "head", pending);
    const nn::Decoder::LinearLoader load = linear_loader(dir_, device_);
    quantize_linear(dir_.head(), load(dir_.head()), factor, pending);
    return pending;
  }

  // Waits for the codes, checks them and writes them to a file.
  void write(PendingLinears pending, const std::filesystem::path& path) {
    const StageClock::Span span(run_.clock, "quantize: write");
    std::vector<std::pair<std::string, codec::Exl2Linear>> linears;
    if (!pending.linears.empty()) device_.wait(pending.linears.back().second.differences, "codes");
    for (auto& [where, status] : pending.statuses) {
      device_.wait(status, "codes");
      note_oddities(quant::factor_report(status.as<int32_t>(), kDamping, where), where);
    }
    std::vector<io::TensorPlan> plans;
    for (auto& [key, packed] : pending.linears) {
      linears.emplace_back(key, codec::finish(device_, std::move(packed), key));
      for (io::TensorPlan& p : codec::tensor_plans(key, plan_.layouts.at(key), linears.back().second.out)) {
        plans.push_back(std::move(p));
      }
    }
    const size_t parts = linears.empty() ? 1 : plans.size() / linears.size();
    io::write_safetensors(path, plans,
                          [&](size_t i) { return codec::tensor_bytes(linears[i / parts].second, i % parts); });
  }

 private:
  bool is_quantized(const model::LinearInfo& info) const {
    return plan_.layouts.contains(dir_.reference_name(info.key));
  }

  Tensor zeros(size_t width) {
    const Tensor h = device_.allocate(width, width);
    device_.enqueue(op::Fill{h, 0});
    return h;
  }

  // Moves the states to the site and returns the Hessian of its inputs; empty if none of its linears is quantized. A
  // site that leaves a module weighs each token by the inverse squared norm of the residual stream it writes to;
  // elsewhere the norms before the linears have made tokens equal.
  Tensor reach_site(size_t layer, size_t site, const nn::LayerWeights& weights, States& states) {
    const auto linears = nn::site_linears(site);
    const bool any = std::any_of(linears.begin(), linears.end(),
                                 [&](model::LinearKind kind) { return is_quantized(dir_.linear(layer, kind)); });
    const Tensor hessian = any ? zeros(dir_.linear(layer, linears[0]).in) : Tensor{};
    const bool weighted = site % 2 == 1 && !dir_.config().post_norms;
    states.for_each([&](const nn::RowBatch& batch, nn::Carry& carry) {
      {
        const StageClock::Span span(run_.clock, "quantize: forward");
        if (site == 0) decoder_.begin(weights, carry);
        if (site > 0) decoder_.advance(weights, layer, site - 1, batch, carry);
      }
      if (!any) return;
      const StageClock::Span span(run_.clock, "quantize: Hessians");
      Tensor weight;
      if (weighted) {
        weight = device_.allocate(batch.tokens(), 1);
        device_.enqueue(op::RowSquaredNorms{carry.h, {}, weight});
        device_.enqueue(op::RowRatios{{}, weight, weight, {}});
      }
      device_.enqueue(op::AccumulateGram{carry.x, weight, hessian, run_.precision});
    });
    return hessian;
  }

  quant::Factor site_factor(const Tensor& hessian, const std::string& where, PendingLinears& pending) {
    const StageClock::Span span(run_.clock, "quantize: factors");
    quant::Factor factor = quant::factorize(device_, hessian, kDamping);
    pending.statuses.emplace_back(where, device_.download(factor.status));
    return factor;
  }

  // The weights (out, in) that a loader of the output will see.
  Tensor as_stored(const model::LinearInfo& info, Tensor w, const quant::Factor& factor, PendingLinears& pending) {
    if (is_quantized(info)) return quant::dequantize(device_, quantize_linear(info, std::move(w), factor, pending));
    const Tensor half = device_.allocate(w.rows, w.cols, backend::DType::kF16);  // check_half_range saw that it fits
    device_.enqueue(op::Copy{w, half});
    device_.enqueue(op::Copy{half, w});
    return w;
  }

  // Quantizes w (out, in) and appends its tensors.
  quant::QuantizedLinear quantize_linear(const model::LinearInfo& info, Tensor w, const quant::Factor& factor,
                                         PendingLinears& pending) {
    const std::string key = dir_.reference_name(info.key);
    quant::QuantizedLinear q = [&] {
      const StageClock::Span span(run_.clock, "quantize: GPTQ");
      const Tensor rows = quant::transposed_in_order(device_, w, factor.order);
      w = {};
      return quant::quantize_gptq(device_, rows, static_cast<uint32_t>(info.out), factor, plan_.layouts.at(key));
    }();
    const StageClock::Span span(run_.clock, "quantize: pack and verify");
    pending.linears.emplace_back(key, codec::pack(device_, q));
    return q;
  }

  void note_oddities(const quant::FactorReport& factor, const std::string& where) {
    if (factor.identity) {
      run_.reporter.warn("quantize",
                         fmt::format("{}: the Hessian cannot be factored; its linears are rounded to nearest", where));
    } else if (factor.damping > kDamping) {
      run_.reporter.note("quantize", fmt::format("{}: the Hessian needed a damping of {:g}", where, factor.damping));
    }
  }

  Run& run_;
  backend::Backend& device_;
  const model::ModelDir& dir_;
  const nn::Decoder& decoder_;
  const OutputPlan& plan_;
};

}  // namespace

std::filesystem::path layer_file(const std::filesystem::path& layers_dir, size_t layer) {
  return layers_dir / fmt::format("layer-{:05}.safetensors", layer);
}

void quantize_layers(Run& run, const model::ModelDir& dir, const calib::Rows& rows, const OutputPlan& plan,
                     const std::filesystem::path& layers_dir) {
  const nn::Decoder decoder(*run.device, dir.config(), rows.length, run.precision);
  States states = embed_rows(run, decoder, dir, rows);
  const nn::Decoder::LinearLoader load = linear_loader(dir, *run.device);
  LayerFeed feed(run, dir, decoder, load, "quantize");
  LayerQuantizer quantizer(run, dir, decoder, plan);
  const size_t layers = dir.config().n_layers;
  const auto steps = static_cast<double>(layers + 1);
  std::optional<PendingLinears>
      pending;  // of the layer before: the device is given the next one before it is waited for
  for (size_t layer = 0; layer < layers; ++layer) {
    run.reporter.progress("quantize", static_cast<double>(layer), steps, fmt::format("layer {}", layer));
    PendingLinears next = quantizer.enqueue_layer(layer, feed.next(), states);
    feed.all_enqueued();
    if (pending) quantizer.write(std::move(*pending), layer_file(layers_dir, layer - 1));
    pending = std::move(next);
  }
  if (pending) quantizer.write(std::move(*pending), layer_file(layers_dir, layers - 1));
  run.reporter.progress("quantize", static_cast<double>(layers), steps, "head");
  if (plan.layouts.contains(dir.reference_name(dir.head().key))) {
    quantizer.write(quantizer.enqueue_head(states), layer_file(layers_dir, layers));
  }
  run.reporter.progress("quantize", steps, steps);
}

}  // namespace bw::pipeline
