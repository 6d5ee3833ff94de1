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
  // layer. gains: (tokens, kLinearsPerLayer)
  PendingLinears enqueue_layer(size_t layer, nn::LayerWeights weights, const Matrix<float>& gains, States& states) {
    PendingLinears pending;
    const Tensor gain = device_.upload(gains.span(), gains.rows(), gains.cols());
    for (size_t site = 0; site < nn::kSites; ++site) {
      const SiteHessians hessians = reach_site(layer, site, weights, gain, states);
      const auto kinds = nn::site_linears(site);
      for (size_t i = 0; i < kinds.size(); ++i) {
        Tensor& raw = weights.raw[static_cast<size_t>(kinds[i])];
        const model::LinearInfo info = dir_.linear(layer, kinds[i]);
        const Tensor w =
            is_quantized(info)
                ? quant::dequantize(device_, quantize_linear(info, std::exchange(raw, {}), hessians[i], pending))
                : as_half(std::exchange(raw, {}));
        const StageClock::Span span(run_.clock, "quantize: forward");
        weights.linears[static_cast<size_t>(kinds[i])] = decoder_.pack(w);
      }
    }
    const StageClock::Span span(run_.clock, "quantize: forward");
    states.for_each([&](const nn::RowBatch& batch, nn::Carry& carry) {
      decoder_.advance(weights, layer, nn::kSites - 1, batch, carry);
    });
    return pending;
  }

  // The head reads the final norm of the states. gains: (tokens, 1)
  PendingLinears enqueue_head(const Matrix<float>& gains, States& states) {
    const Tensor norm = decoder_.load_final_norm(dir_);
    const Tensor hessian = zeros(dir_.config().hidden);
    const Tensor gain = device_.upload(gains.span(), gains.rows(), 1);
    size_t first = 0;
    states.for_each([&](const nn::RowBatch& batch, nn::Carry& carry) {
      const StageClock::Span span(run_.clock, "quantize: Hessians");
      const Tensor x = device_.allocate(carry.h.rows, carry.h.cols);
      device_.enqueue(op::RmsNorm{carry.h, norm, dir_.config().norm_eps, x});
      device_.enqueue(op::AccumulateGram{x, gain.rows_slice(first, batch.tokens()), hessian, run_.precision});
      first += batch.tokens();
    });
    PendingLinears pending;
    const nn::Decoder::LinearLoader load = linear_loader(dir_, device_);
    quantize_linear(dir_.head(), load(dir_.head()), hessian, pending);
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

  using SiteHessians = std::vector<Tensor>;  // of the site's linears, in order; empty for one that is not quantized

  // Moves the states to the site and returns the Hessians of its linears: Σ gain_t x xᵀ over the disturbed inputs, with
  // the gains of the undisturbed model.
  SiteHessians reach_site(size_t layer, size_t site, const nn::LayerWeights& weights, const Tensor& gain,
                          States& states) {
    const auto kinds = nn::site_linears(site);
    SiteHessians hessians(kinds.size());
    for (size_t i = 0; i < kinds.size(); ++i) {
      const model::LinearInfo info = dir_.linear(layer, kinds[i]);
      if (is_quantized(info)) hessians[i] = zeros(info.in);
    }
    size_t first = 0;
    states.for_each([&](const nn::RowBatch& batch, nn::Carry& carry) {
      {
        const StageClock::Span span(run_.clock, "quantize: forward");
        if (site == 0) decoder_.begin(weights, carry);
        if (site > 0) decoder_.advance(weights, layer, site - 1, batch, carry);
      }
      const StageClock::Span span(run_.clock, "quantize: Hessians");
      for (size_t i = 0; i < kinds.size(); ++i) {
        if (hessians[i].empty()) continue;
        const Tensor weight = gain.rows_slice(first, batch.tokens()).cols_slice(static_cast<size_t>(kinds[i]), 1);
        device_.enqueue(op::AccumulateGram{carry.x, weight, hessians[i], run_.precision});
      }
      first += batch.tokens();
    });
    return hessians;
  }

  // The weights as a loader of f16 tensors will see them (check_half_range saw that they fit).
  Tensor as_half(Tensor w) {
    const Tensor half = device_.allocate(w.rows, w.cols, backend::DType::kF16);
    device_.enqueue(op::Copy{w, half});
    device_.enqueue(op::Copy{half, w});
    return w;
  }

  // Quantizes w (out, in) and appends its tensors.
  quant::QuantizedLinear quantize_linear(const model::LinearInfo& info, Tensor w, const Tensor& hessian,
                                         PendingLinears& pending) {
    const std::string key = dir_.reference_name(info.key);
    const quant::Factor factor = [&] {
      const StageClock::Span span(run_.clock, "quantize: factors");
      return quant::factorize(device_, hessian, kDamping);
    }();
    pending.statuses.emplace_back(key, device_.download(factor.status));
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
                         fmt::format("{}: the Hessian cannot be factored; it is rounded to nearest", where));
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

void quantize_layers(Run& run, const model::ModelDir& dir, const calib::Rows& rows, const TokenGains& gains,
                     const OutputPlan& plan, const std::filesystem::path& layers_dir) {
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
    PendingLinears next = quantizer.enqueue_layer(layer, feed.next(), gains.layers[layer], states);
    feed.all_enqueued();
    if (pending) quantizer.write(std::move(*pending), layer_file(layers_dir, layer - 1));
    pending = std::move(next);
  }
  if (pending) quantizer.write(std::move(*pending), layer_file(layers_dir, layers - 1));
  run.reporter.progress("quantize", static_cast<double>(layers), steps, "head");
  if (plan.layouts.contains(dir.reference_name(dir.head().key))) {
    quantizer.write(quantizer.enqueue_head(gains.head, states), layer_file(layers_dir, layers));
  }
  run.reporter.progress("quantize", steps, steps);
}

}  // namespace bw::pipeline
