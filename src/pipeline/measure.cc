#include "pipeline/measure.h"

#include <array>

#include <fmt/format.h>

#include "codec/candidates.h"
#include "codec/exl2.h"
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

// A linear whose prices are on their way to the host.
struct PendingLinear {
  size_t index;       // in Measurement::linears
  HostTensor status;  // of its factor
  HostTensor errors;  // see quant::price_errors
};

class LayerPricer final : public GradientVisitor {
 public:
  LayerPricer(Run& run, double min_step, Measurement& m)
      : run_(run), device_(*run.device), min_step_(min_step), m_(m) {}

  void begin(size_t, const nn::LayerWeights& weights) override {
    for (size_t i = 0; i < model::kLinearsPerLayer; ++i) {
      const size_t width = weights.raw[i].cols;
      hessians_[i] = device_.allocate(width, width);
      device_.enqueue(op::Fill{hessians_[i], 0});
    }
  }

  void visit(model::LinearKind kind, const Tensor& x, const Tensor& gains) override {
    const StageClock::Span span(run_.clock, "measure: Hessians");
    device_.enqueue(op::AccumulateGram{x, gains, hessians_[static_cast<size_t>(kind)], run_.precision});
  }

  void end(size_t layer, const nn::LayerWeights& weights) override {
    std::vector<PendingLinear> pending;
    for (size_t i = 0; i < model::kLinearsPerLayer; ++i) {
      const size_t index = layer * model::kLinearsPerLayer + i;
      if (!m_.linears[index].candidates.empty()) pending.push_back(price(index, weights.raw[i], hessians_[i]));
      hessians_[i] = {};
    }
    finish();  // the layer before: the device has been given this one
    pending_ = std::move(pending);
  }

  // Waits for the last layer's prices and turns them into candidates.
  void finish() {
    const StageClock::Span span(run_.clock, "measure: candidates");
    for (auto p = pending_.rbegin(); p != pending_.rend(); ++p) {  // the last download first: the others came with it
      device_.wait(p->errors, "prices");
      device_.wait(p->status, "prices");
      LinearMeasurement& linear = m_.linears[p->index];
      note_oddities(quant::factor_report(p->status.as<int32_t>(), kPriceDamping, linear.key), linear.key);
      const double unit = 0.5 / (static_cast<double>(m_.rows * m_.length) * linear.out);
      const quant::PriceTable table =
          quant::price_table(p->errors.view<const double>(), static_cast<uint32_t>(linear.in));
      linear.candidates = codec::candidates(table, static_cast<uint32_t>(linear.out), linear.bias_bits, min_step_);
      for (codec::Candidate& c : linear.candidates) c.price *= unit;
    }
    pending_.clear();
  }

  // Inputs of linears that no token has made active.
  size_t dead_inputs() const { return dead_inputs_; }

 private:
  PendingLinear price(size_t index, const Tensor& w, const Tensor& hessian) {
    const quant::Factor factor = [&] {
      const StageClock::Span span(run_.clock, "measure: factors");
      return quant::factorize(device_, hessian, kPriceDamping);
    }();
    const StageClock::Span span(run_.clock, "measure: prices");
    const Tensor rows = quant::transposed_in_order(device_, w, factor.order);
    const Tensor errors = quant::price_errors(device_, rows, factor);
    return {index, device_.download(factor.status), device_.download(errors)};
  }

  void note_oddities(const quant::FactorReport& factor, const std::string& where) {
    if (factor.identity) {
      run_.reporter.warn("measure", fmt::format("{}: the Hessian cannot be factored; it is rounded to nearest", where));
    } else if (factor.dead > 0) {
      dead_inputs_ += factor.dead;
    }
  }

  Run& run_;
  backend::Backend& device_;
  double min_step_;
  Measurement& m_;
  std::array<Tensor, model::kLinearsPerLayer> hessians_;  // (in, in), upper triangle: Σ gain_t x xᵀ
  std::vector<PendingLinear> pending_;
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

Measured measure_model(Run& run, const model::ModelDir& dir, const calib::Rows& rows, uint64_t seed,
                       const std::filesystem::path& scratch, double min_step) {
  Measured result;
  Measurement& m = result.measurement;
  m = shape_measurement(dir);
  m.fingerprint = fingerprint(dir);
  tell_plain_blocks(m, run.reporter);
  m.source = rows.source;
  m.rows = rows.count();
  m.length = rows.length;
  LayerPricer pricer(run, min_step, m);
  result.gains = find_gradients(run, dir, rows, seed, scratch, &pricer);
  pricer.finish();
  if (pricer.dead_inputs() > 0) {
    run.reporter.note("measure", fmt::format("{} inputs of linears were never active", pricer.dead_inputs()));
  }
  return result;
}

}  // namespace bw::pipeline
