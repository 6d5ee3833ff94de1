#include "pipeline/measure.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "backend/host.h"
#include "codec/exl2.h"
#include "quant/factor.h"
#include "quant/gptq.h"

namespace bw::pipeline {
namespace {

// Damping of the factor that prices are estimated with.
constexpr float kPriceDamping = 0.1f;

// Sums over the tokens of a layer, one Hessian for each site.
struct SiteSums {
  std::array<backend::Tensor, nn::kSites> hessians;  // (width, width), upper triangle: Σ weight_t x xᵀ
  std::array<double, nn::kSites / 2> shares{};       // of each module, Σ |module_t|² / |h_t|²
};

// weights (T, 1) for the site that feeds a module and the site that leaves it.
struct ModuleWeights {
  backend::Tensor in, out;
  double sum_in = 0;
};

// A site that leaves the module writes to the residual stream: its error counts relative to the stream's norm, 1 /
// |h|². The error of a site that enters it counts as a share of what the module adds: |module|² / |h|² (see
// finish_site).
ModuleWeights module_weights(backend::Backend& device, const backend::Tensor& before, const backend::Tensor& after) {
  const size_t tokens = after.rows;
  const backend::Tensor norms = device.allocate(tokens, 1);
  std::vector<float> stream(tokens), added(tokens);
  device.row_squared_norms(after, norms);
  device.read(norms, stream, "residual norms");
  device.scale(before, -1.0f);
  device.add(after, before);
  device.row_squared_norms(before, norms);
  device.read(norms, added, "residual norms");
  ModuleWeights w{device.allocate(tokens, 1), device.allocate(tokens, 1), 0};
  for (size_t t = 0; t < tokens; ++t) {
    const float inverse = stream[t] > 0 ? 1.0f / stream[t] : 0.0f;
    added[t] *= inverse;
    stream[t] = inverse;
    w.sum_in += added[t];
  }
  device.upload(w.in, std::span<const float>(added));
  device.upload(w.out, std::span<const float>(stream));
  return w;
}

backend::Tensor clone(backend::Backend& device, const backend::Tensor& x) {
  backend::Tensor y = device.allocate(x.rows, x.cols);
  device.copy(x, y);
  return y;
}

class LayerMeasurer {
 public:
  LayerMeasurer(Run& run, const model::ModelDir& dir, const nn::Decoder& decoder)
      : run_(run), device_(*run.device), dir_(dir), decoder_(decoder) {}

  // Moves the states through the layer and prices its linears.
  void measure(size_t layer, States& states, Measurement& m) {
    const auto load = linear_loader(dir_, run_.pool());
    dir_.prefetch_layer(layer);
    const nn::LayerWeights weights = [&] {
      const StageClock::Span span(run_.clock, "measure: load");
      return decoder_.load_layer(dir_, layer, load);
    }();
    SiteSums sums;
    for (size_t site = 0; site < nn::kSites; ++site) {
      const size_t width = dir_.linear(layer, nn::site_linears(site)[0]).in;
      sums.hessians[site] = device_.allocate(width, width);
      device_.fill(sums.hessians[site], 0);
    }
    for (size_t b = 0; b < states.batches.size(); ++b) {
      accumulate(weights, layer, states.batches[b], states.carries[b], sums);
    }
    for (size_t site = 0; site < nn::kSites; ++site) finish_site(layer, site, sums, states.tokens, load, m);
    dir_.release_layer(layer);
  }

  // Inputs of linears that no token has made active.
  size_t dead_inputs() const { return dead_inputs_; }

 private:
  // True where a linear's error counts relative to its own output: before the end of a module, and where a norm stands
  // between the module's end and the residual stream.
  bool counts_as_share(size_t site) const { return site % 2 == 0 || dir_.config().post_norms; }

  void accumulate(const nn::LayerWeights& weights, size_t layer, const nn::RowBatch& batch, nn::Carry& carry,
                  SiteSums& sums) {
    decoder_.begin(weights, carry);
    for (size_t site = 0; site < nn::kSites; site += 2) {  // a module: the site that enters it, the site that leaves it
      backend::Tensor x_in, x_out;
      const ModuleWeights w = [&] {
        const StageClock::Span span(run_.clock, "measure: forward");
        const backend::Tensor before = clone(device_, carry.h);
        x_in = carry.x;
        decoder_.advance(weights, layer, site, batch, carry);
        x_out = carry.x;
        decoder_.advance(weights, layer, site + 1, batch, carry);
        return module_weights(device_, before, carry.h);
      }();
      const StageClock::Span span(run_.clock, "measure: Hessians");
      device_.accumulate_gram(x_in, &w.in, sums.hessians[site], run_.precision);
      const bool share = counts_as_share(site + 1);
      device_.accumulate_gram(x_out, share ? &w.in : &w.out, sums.hessians[site + 1], run_.precision);
      sums.shares[site / 2] += w.sum_in;
    }
  }

  void finish_site(size_t layer, size_t site, const SiteSums& sums, size_t tokens,
                   const nn::Decoder::LinearLoader& load, Measurement& m) {
    const backend::Tensor& h = sums.hessians[site];
    Matrix<float> hessian(h.rows, h.cols);
    device_.read(h, hessian.span(), "Hessian");
    const std::string where = fmt::format("layer {}, input {}", layer, site);
    const quant::Factor factor = [&] {
      const StageClock::Span span(run_.clock, "measure: factors");
      return quant::factorize(device_, hessian.view(), kPriceDamping, where);
    }();
    const StageClock::Span span(run_.clock, "measure: prices");
    note_oddities(factor, where);
    for (const model::LinearKind kind : nn::site_linears(site)) {
      LinearMeasurement& linear = m.linears[layer * model::kLinearsPerLayer + static_cast<size_t>(kind)];
      if (linear.candidates.empty()) continue;
      const Matrix<float> w = load(dir_.linear(layer, kind));
      double unit = 1.0 / static_cast<double>(tokens);
      // Error relative to the linear's own output, times the module's share of the stream.
      if (counts_as_share(site)) unit *= sums.shares[site / 2] / output_energy(w, hessian);
      linear.candidates = price(w, factor, linear, unit);
    }
  }

  std::vector<codec::Candidate> price(const Matrix<float>& w, const quant::Factor& factor,
                                      const LinearMeasurement& linear, double unit) {
    const Matrix<float> rows = quant::transposed_in_order(run_.pool(), w.view(), factor.order);
    auto list = codec::candidates(quant::price_table(run_.pool(), rows, factor), linear.out, linear.bias_bits);
    for (codec::Candidate& c : list) c.price *= unit;
    return list;
  }

  // tr(W H Wᵀ): the weighted squared norm of the linear's outputs; never 0.
  double output_energy(const Matrix<float>& w, const Matrix<float>& upper) {
    Matrix<float> full = upper.clone();
    for (size_t i = 0; i < full.rows(); ++i) {
      for (size_t j = 0; j < i; ++j) full(i, j) = upper(j, i);
    }
    Matrix<float> product(w.rows(), w.cols());
    device_.gemm(backend::borrow(w.view()), false, backend::borrow(std::as_const(full).view()), false,
                 backend::borrow(product.view()), 1.0f, 0.0f, backend::Precision::kF32);
    double sum = 0;
    for (size_t r = 0; r < w.rows(); ++r) {
      float row = 0;
      for (size_t c = 0; c < w.cols(); ++c) row += w(r, c) * product(r, c);
      sum += row;
    }
    return sum > 0 ? sum : 1.0;
  }

  void note_oddities(const quant::Factor& factor, const std::string& where) {
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

Measurement measure_model(Run& run, const model::ModelDir& dir, const calib::Rows& rows) {
  Measurement m = shape_measurement(dir);
  m.fingerprint = fingerprint(dir);
  tell_plain_blocks(m, run.reporter);
  m.source = rows.source;
  m.rows = rows.count();
  m.length = rows.length;
  const nn::Decoder decoder(*run.device, dir.config(), rows.length, run.precision);
  States states = embed_rows(decoder, dir, rows);
  LayerMeasurer measurer(run, dir, decoder);
  const size_t layers = dir.config().n_layers;
  for (size_t layer = 0; layer < layers; ++layer) {
    run.reporter.progress("measure", static_cast<double>(layer), static_cast<double>(layers),
                          fmt::format("layer {}", layer));
    measurer.measure(layer, states, m);
  }
  run.reporter.progress("measure", static_cast<double>(layers), static_cast<double>(layers));
  if (measurer.dead_inputs() > 0) {
    run.reporter.note("measure", fmt::format("{} inputs of linears were never active", measurer.dead_inputs()));
  }
  return m;
}

}  // namespace bw::pipeline
