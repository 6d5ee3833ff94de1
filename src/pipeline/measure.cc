#include "pipeline/measure.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "codec/candidates.h"
#include "codec/exl2.h"
#include "quant/factor.h"
#include "quant/gptq.h"
#include "quant/held_out.h"

namespace bw::pipeline {
namespace {

using backend::DType;
using backend::HostTensor;
using backend::Tensor;
namespace op = backend::op;

// A matrix whose prices are on their way to the host.
struct Pending {
  MatrixMeasurement* matrix = nullptr;
  HostTensor status;  // of its factor
  HostTensor errors;  // see quant::price_errors; of the head: (widths, groups) at its group size
};

class LayerPricer final : public GradientVisitor {
 public:
  LayerPricer(Run& run, const model::ModelDir& dir, size_t rounding_tokens, double min_step, Measurement& m)
      : run_(run), device_(*run.device), dir_(dir), rounding_tokens_(rounding_tokens), min_step_(min_step), m_(m) {}

  void visit_head(const Tensor& x, const Tensor& gains) override {
    if (m_.head.candidates.empty()) return;
    if (!head_) head_ = empty_sums(1, x.cols);
    add(*head_, 0, x, gains);
  }

  void end_head(const Tensor& weights, const Tensor& gains) override {
    if (m_.head.candidates.empty()) return;
    pending_head_ = price(m_.head, weights, *head_, 0, gains);
    head_.reset();
  }

  void begin(size_t, const nn::LayerWeights& weights) override {
    for (size_t site = 0; site < nn::kSites; ++site) {
      const auto kinds = nn::site_linears(site);
      sites_[site] = empty_sums(kinds.size(), weights.raw[static_cast<size_t>(kinds[0])].cols);
    }
  }

  void visit(model::LinearKind kind, const Tensor& x, const Tensor& gains) override {
    add(*sites_[nn::site_of(kind)], place_in_site(kind), x, gains);
  }

  void end(size_t layer, const nn::LayerWeights& weights, const Tensor& gains) override {
    std::vector<Pending> pending;
    for (size_t i = 0; i < model::kLinearsPerLayer; ++i) {
      const auto kind = static_cast<model::LinearKind>(i);
      LinearMeasurement& linear = m_.linears[layer * model::kLinearsPerLayer + i];
      quant::HeldOutTokens& sums = *sites_[nn::site_of(kind)];
      if (!linear.candidates.empty()) {
        pending.push_back(price(linear, weights.raw[i], sums, place_in_site(kind), gains.cols_slice(i, 1)));
      }
      sums.discard(place_in_site(kind));
    }
    for (auto& site : sites_) site.reset();
    finish_layer();  // the one before: the device has been given this one
    pending_ = std::move(pending);
  }

  // Between two layers, or after the last. The head comes last, though it was priced first: where states are no
  // numbers, the error names a layer.
  void finish() {
    finish_layer();
    if (pending_head_.matrix) take(std::exchange(pending_head_, {}));
  }

  io::Json save() override {
    finish();
    return {{"measurement", to_json(m_)}, {"dead_inputs", dead_inputs_}};
  }

  void restore(const io::Json& found) override {
    Measurement m = parse_measurement(found.at("measurement"), "the work folder");
    require_of_model(m, dir_, "the work folder");
    found.at("dead_inputs").get_to(dead_inputs_);
    m_ = std::move(m);
  }

  // Inputs of linears that no token has made active.
  size_t dead_inputs() const { return dead_inputs_; }

 private:
  // Waits for the last layer's prices and turns them into candidates.
  void finish_layer() {
    for (auto p = pending_.rbegin(); p != pending_.rend(); ++p) take(*p);  // the last first: the others came with it
    pending_.clear();
  }

  static size_t place_in_site(model::LinearKind kind) {
    const auto kinds = nn::site_linears(nn::site_of(kind));
    return static_cast<size_t>(std::find(kinds.begin(), kinds.end(), kind) - kinds.begin());
  }

  quant::HeldOutTokens empty_sums(size_t linears, size_t in) const {
    return {device_, linears, m_.rows * m_.length, in, kHeldOutTokens, run_.precision};
  }

  void add(quant::HeldOutTokens& sums, size_t linear, const Tensor& x, const Tensor& gains) {
    const StageClock::Span span(run_.clock, "measure: Hessians");
    sums.add(linear, x, gains);
  }

  // As quantizing it with the tokens of prices would take.
  float damping(const MatrixMeasurement& matrix) const { return quant::damping_for(matrix.in, m_.rows * m_.length); }

  bool is_head(const MatrixMeasurement& matrix) const { return &matrix == &m_.head; }

  // linear: its place among those of the sums; gains: of all tokens.
  Pending price(MatrixMeasurement& matrix, const Tensor& w, const quant::HeldOutTokens& sums, size_t linear,
                const Tensor& gains) {
    const quant::Factor factor = [&] {
      const StageClock::Span span(run_.clock, "measure: factors");
      return quant::factorize(device_, sums.hessian(linear), damping(matrix));
    }();
    const Tensor weights = [&] {
      const StageClock::Span span(run_.clock, "measure: held-out weights");
      return sums.weights(linear, factor, gains, rounding_tokens_);
    }();
    const StageClock::Span span(run_.clock, "measure: prices");
    const Tensor rows = quant::transposed_in_order(device_, w, factor.order);
    const Tensor errors = is_head(matrix) ? head_errors(rows, weights) : quant::price_errors(device_, rows, weights);
    return {&matrix, device_.download(factor.status), device_.download(errors)};
  }

  // quant::price_errors at the head's group size alone.
  Tensor head_errors(const Tensor& rows, const Tensor& weights) {
    const Tensor errors = device_.allocate(quant::kWidths, rows.rows / kHeadGroupSize, DType::kF64);
    device_.enqueue(op::PriceGroups{
        rows, weights, {std::begin(quant::kBitWidths), std::end(quant::kBitWidths)}, {kHeadGroupSize}, errors});
    return errors;
  }

  void take(const Pending& p) {
    const StageClock::Span span(run_.clock, "measure: candidates");
    device_.wait(p.errors, "prices");
    device_.wait(p.status, "prices");
    MatrixMeasurement& matrix = *p.matrix;
    note_oddities(quant::factor_report(p.status.as<int32_t>(), damping(matrix), matrix.key), matrix.key);
    const auto errors = p.errors.view<const double>();
    if (is_head(matrix)) {
      for (codec::Candidate& c : matrix.candidates) c.price = head_error(errors, c.layout.runs.front().bits);
    } else {
      matrix.candidates =
          codec::candidates(quant::price_table(errors, matrix.in), matrix.out, matrix.bias_bits, min_step_);
    }
    const double unit = 0.5 / (static_cast<double>(m_.rows * m_.length) * matrix.out);
    for (codec::Candidate& c : matrix.candidates) c.price *= unit;
  }

  // Of all rows at one width, by the groups' errors; see quant::PriceTable.
  static double head_error(MatrixView<const double> errors, int bits) {
    const double* groups = errors.row(quant::width_index(bits));
    return quant::feedback(bits) * std::accumulate(groups, groups + errors.cols, 0.0);
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
  const model::ModelDir& dir_;
  size_t rounding_tokens_;
  double min_step_;
  Measurement& m_;
  std::array<std::optional<quant::HeldOutTokens>, nn::kSites> sites_;  // of the layer
  std::optional<quant::HeldOutTokens> head_;
  std::vector<Pending> pending_;  // of the last layer
  Pending pending_head_;
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

Measured measure_model(Run& run, const model::ModelDir& dir, const calib::Rows& rows, size_t rounding_tokens,
                       uint64_t seed, const StageWork& work, double min_step) {
  Measured result;
  Measurement& m = result.measurement;
  m = shape_measurement(dir);
  m.fingerprint = fingerprint(dir);
  tell_plain_blocks(m, run.reporter);
  m.source = rows.source;
  m.rows = rows.count();
  m.length = rows.length;
  LayerPricer pricer(run, dir, rounding_tokens, min_step, m);
  result.gains = find_gradients(run, dir, rows, seed, work, &pricer);
  pricer.finish();
  if (pricer.dead_inputs() > 0) {
    run.reporter.note("measure", fmt::format("{} inputs of linears were never active", pricer.dead_inputs()));
  }
  return result;
}

}  // namespace bw::pipeline
