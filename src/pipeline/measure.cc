#include "pipeline/measure.h"

#include <array>
#include <optional>

#include <fmt/format.h>

#include "codec/candidates.h"
#include "codec/exl2.h"
#include "pipeline/layer_feed.h"
#include "quant/factor.h"
#include "quant/gptq.h"

namespace bw::pipeline {
namespace {

using backend::DType;
using backend::HostTensor;
using backend::Tensor;
namespace op = backend::op;

// Damping of the factor that prices are estimated with.
constexpr float kPriceDamping = 0.1f;
constexpr size_t kModules = nn::kSites / 2;

// Sums over the tokens of a layer, on the device.
struct LayerSums {
  std::array<Tensor, nn::kSites> hessians;  // (width, width), upper triangle: Σ weight_t x xᵀ
  Tensor shares;                            // (1, modules) f64: Σ |module_t|² / |h_t|²
};

// A linear whose prices are on their way to the host.
struct PendingLinear {
  size_t index;  // in Measurement::linears
  size_t site;
  HostTensor errors;  // see quant::price_errors
  HostTensor energy;  // (1, 1) f64: tr(W H Wᵀ); empty unless its error counts as a share of the module
};

// A layer whose work has been enqueued.
struct PendingLayer {
  size_t layer = 0;
  std::vector<PendingLinear> linears;
  std::array<HostTensor, nn::kSites> statuses;
  HostTensor shares;
};

class LayerMeasurer {
 public:
  LayerMeasurer(Run& run, const model::ModelDir& dir, const nn::Decoder& decoder, double min_step, Measurement& m)
      : run_(run), device_(*run.device), dir_(dir), decoder_(decoder), min_step_(min_step), m_(m) {}

  // Enqueues the move of the states through the layer and the pricing of its linears.
  PendingLayer enqueue(size_t layer, nn::LayerWeights weights, States& states) {
    {
      const StageClock::Span span(run_.clock, "measure: forward");
      decoder_.pack(weights, true);
    }
    LayerSums sums{{}, device_.allocate(1, kModules, DType::kF64)};
    device_.enqueue(op::Fill{sums.shares, 0});
    for (size_t site = 0; site < nn::kSites; ++site) {
      const size_t width = dir_.linear(layer, nn::site_linears(site)[0]).in;
      sums.hessians[site] = device_.allocate(width, width);
      device_.enqueue(op::Fill{sums.hessians[site], 0});
    }
    states.for_each(
        [&](const nn::RowBatch& batch, nn::Carry& carry) { accumulate(weights, layer, batch, carry, sums); });
    PendingLayer pending;
    pending.layer = layer;
    for (size_t site = 0; site < nn::kSites; ++site) price_site(site, weights, sums.hessians[site], pending);
    pending.shares = device_.download(std::move(sums.shares));
    return pending;
  }

  // Waits for the layer's prices and turns them into candidates.
  void finish(const PendingLayer& pending) {
    const StageClock::Span span(run_.clock, "measure: candidates");
    device_.wait(pending.shares, "prices");  // the last download: the others have passed with it
    const auto shares = pending.shares.as<double>();
    for (size_t site = 0; site < nn::kSites; ++site) {
      device_.wait(pending.statuses[site], "prices");
      const std::string where = fmt::format("layer {}, input {}", pending.layer, site);
      note_oddities(quant::factor_report(pending.statuses[site].as<int32_t>(), kPriceDamping, where), where);
    }
    for (const PendingLinear& p : pending.linears) {
      device_.wait(p.errors, "prices");
      LinearMeasurement& linear = m_.linears[p.index];
      double unit = 1.0 / static_cast<double>(m_.rows * m_.length);
      if (p.energy.memory) {  // error relative to the linear's own output, times the module's share of the stream
        device_.wait(p.energy, "prices");
        const double energy = p.energy.as<double>()[0];
        unit *= shares[p.site / 2] / (energy > 0 ? energy : 1.0);
      }
      const quant::PriceTable table =
          quant::price_table(p.errors.view<const double>(), static_cast<uint32_t>(linear.in));
      linear.candidates = codec::candidates(table, static_cast<uint32_t>(linear.out), linear.bias_bits, min_step_);
      for (codec::Candidate& c : linear.candidates) c.price *= unit;
    }
  }

  // Inputs of linears that no token has made active.
  size_t dead_inputs() const { return dead_inputs_; }

 private:
  // True where a linear's error counts relative to its own output: before the end of a module, and where a norm stands
  // between the module's end and the residual stream.
  bool counts_as_share(size_t site) const { return site % 2 == 0 || dir_.config().post_norms; }

  // A site that leaves the module writes to the residual stream: its error counts relative to the stream's norm, 1 /
  // |h|². The error of a site that enters it counts as a share of what the module adds: |module|² / |h|².
  void accumulate(const nn::LayerWeights& weights, size_t layer, const nn::RowBatch& batch, nn::Carry& carry,
                  const LayerSums& sums) {
    const size_t tokens = batch.tokens();
    const Tensor before = device_.allocate(tokens, carry.h.cols);
    const Tensor stream = device_.allocate(tokens, 1), added = device_.allocate(tokens, 1);
    decoder_.begin(weights, carry);
    for (size_t site = 0; site < nn::kSites; site += 2) {  // a module: the site that enters it, the site that leaves it
      Tensor x_in, x_out;
      {
        const StageClock::Span span(run_.clock, "measure: forward");
        device_.enqueue(op::Copy{carry.h, before});
        x_in = carry.x;
        decoder_.advance(weights, layer, site, batch, carry);
        x_out = carry.x;
        decoder_.advance(weights, layer, site + 1, batch, carry);
        device_.enqueue(op::RowSquaredNorms{carry.h, {}, stream});
        device_.enqueue(op::RowSquaredNorms{carry.h, before, added});
        device_.enqueue(op::RowRatios{added, stream, added, sums.shares.cols_slice(site / 2, 1)});
        device_.enqueue(op::RowRatios{{}, stream, stream, {}});
      }
      const StageClock::Span span(run_.clock, "measure: Hessians");
      const bool share = counts_as_share(site + 1);
      device_.enqueue(op::AccumulateGram{x_in, added, sums.hessians[site], run_.precision});
      device_.enqueue(op::AccumulateGram{x_out, share ? added : stream, sums.hessians[site + 1], run_.precision});
    }
  }

  void price_site(size_t site, const nn::LayerWeights& weights, const Tensor& hessian, PendingLayer& pending) {
    const quant::Factor factor = [&] {
      const StageClock::Span span(run_.clock, "measure: factors");
      return quant::factorize(device_, hessian, kPriceDamping);
    }();
    pending.statuses[site] = device_.download(factor.status);
    const StageClock::Span span(run_.clock, "measure: prices");
    Tensor full;
    for (const model::LinearKind kind : nn::site_linears(site)) {
      const size_t index = pending.layer * model::kLinearsPerLayer + static_cast<size_t>(kind);
      if (m_.linears[index].candidates.empty()) continue;
      const Tensor& w = weights.raw[static_cast<size_t>(kind)];
      const Tensor errors = quant::price_errors(device_, quant::transposed_in_order(device_, w, factor.order), factor);
      pending.linears.push_back({index, site, device_.download(errors), {}});
      if (!counts_as_share(site)) continue;
      if (full.empty()) {
        full = device_.allocate(hessian.rows, hessian.cols);
        device_.enqueue(op::Symmetrize{hessian, full});
      }
      pending.linears.back().energy = device_.download(output_energy(w, full));
    }
  }

  // (1, 1) f64: tr(W H Wᵀ), the weighted squared norm of the linear's outputs.
  Tensor output_energy(const Tensor& w, const Tensor& hessian) {
    const Tensor product = device_.allocate(w.rows, w.cols), sum = device_.allocate(1, 1, DType::kF64);
    device_.enqueue(op::Gemm{w, false, hessian, false, product, 1.0f, 0.0f, backend::Precision::kF32});
    device_.enqueue(op::Fill{sum, 0});
    device_.enqueue(op::Dot{w, product, sum});
    return sum;
  }

  void note_oddities(const quant::FactorReport& factor, const std::string& where) {
    if (factor.identity) {
      run_.reporter.warn("measure",
                         fmt::format("{}: the Hessian cannot be factored; its linears are rounded to nearest", where));
    } else if (factor.dead > 0) {
      dead_inputs_ += factor.dead;
    }
  }

  Run& run_;
  backend::Backend& device_;
  const model::ModelDir& dir_;
  const nn::Decoder& decoder_;
  double min_step_;
  Measurement& m_;
  size_t dead_inputs_ = 0;
};

void tell_plain_blocks(const Measurement& m, Reporter& reporter) {
  for (const LinearMeasurement& linear : m.linears) {
    if (codec::can_store(linear.in, linear.out)) continue;
    reporter.warn("measure", fmt::format("{}: {} inputs are no multiple of 32 (or too many); its {} block stays in f16",
                                         linear.key, linear.in, nn::site_of(linear.kind) < 2 ? "attention" : "MLP"));
  }
}

}  // namespace

Measurement measure_model(Run& run, const model::ModelDir& dir, const calib::Rows& rows, double min_step) {
  Measurement m = shape_measurement(dir);
  m.fingerprint = fingerprint(dir);
  tell_plain_blocks(m, run.reporter);
  m.source = rows.source;
  m.rows = rows.count();
  m.length = rows.length;
  const nn::Decoder decoder(*run.device, dir.config(), rows.length, run.precision);
  States states = embed_rows(run, decoder, dir, rows);
  const nn::Decoder::LinearLoader load = linear_loader(dir, *run.device);
  LayerFeed feed(run, dir, decoder, load, "measure");
  LayerMeasurer measurer(run, dir, decoder, min_step, m);
  const size_t layers = dir.config().n_layers;
  std::optional<PendingLayer> pending;  // the layer before: the device is given the next one before it is waited for
  for (size_t layer = 0; layer < layers; ++layer) {
    run.reporter.progress("measure", static_cast<double>(layer), static_cast<double>(layers),
                          fmt::format("layer {}", layer));
    PendingLayer next = measurer.enqueue(layer, feed.next(), states);
    feed.all_enqueued();
    if (pending) measurer.finish(*pending);
    pending = std::move(next);
  }
  if (pending) measurer.finish(*pending);
  run.reporter.progress("measure", static_cast<double>(layers), static_cast<double>(layers));
  if (measurer.dead_inputs() > 0) {
    run.reporter.note("measure", fmt::format("{} inputs of linears were never active", measurer.dead_inputs()));
  }
  return m;
}

}  // namespace bw::pipeline
