#include "pipeline/quantize.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "backend/host.h"
#include "base/half.h"
#include "bitwright/error.h"
#include "codec/exl2.h"
#include "quant/factor.h"
#include "quant/gptq.h"

namespace bw::pipeline {
namespace {

constexpr float kDamping = 0.1f;  // of mean(diag H); docs/quality.md has the figures

using PackedLinears = std::vector<std::pair<std::string, codec::Exl2Linear>>;  // key, tensors

void write_linears(const PackedLinears& linears, const OutputPlan& plan, const std::filesystem::path& path) {
  std::vector<io::TensorPlan> plans;
  for (const auto& [key, packed] : linears) {
    for (io::TensorPlan& p : codec::tensor_plans(key, plan.layouts.at(key), packed.out)) plans.push_back(std::move(p));
  }
  const size_t parts = linears.empty() ? 1 : plans.size() / linears.size();
  io::write_safetensors(path, plans,
                        [&](size_t i) { return codec::tensor_bytes(linears[i / parts].second, i % parts); });
}

void round_to_half_in_place(Matrix<float>& w, const std::string& key) {
  for (float& x : w.span()) {
    const float rounded = round_to_half(x);
    if (!std::isfinite(rounded)) {
      throw Error(ErrorCode::kModel, fmt::format("{}.weight: it stays in f16, which cannot hold its value {}", key, x),
                  "the model cannot be converted as it is");
    }
    x = rounded;
  }
}

template <typename T>
bool equal(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

class LayerQuantizer {
 public:
  LayerQuantizer(Run& run, const model::ModelDir& dir, const nn::Decoder& decoder, const OutputPlan& plan)
      : run_(run),
        device_(*run.device),
        dir_(dir),
        decoder_(decoder),
        plan_(plan),
        load_(linear_loader(dir, run.pool())) {}

  // Quantizes the layer's linears, site by site, and moves the states through the quantized layer.
  PackedLinears quantize_layer(size_t layer, States& states) {
    PackedLinears packed;
    dir_.prefetch_layer(layer);
    nn::LayerWeights weights = decoder_.load_layer(dir_, layer, nullptr);
    for (nn::Carry& carry : states.carries) decoder_.begin(weights, carry);
    for (size_t site = 0; site < nn::kSites; ++site) {
      const bool any =
          std::any_of(nn::site_linears(site).begin(), nn::site_linears(site).end(), [&](model::LinearKind kind) {
            return plan_.layouts.contains(dir_.reference_name(dir_.linear(layer, kind).key));
          });
      const std::string where = fmt::format("layer {}, input {}", layer, site);
      const quant::Factor factor =
          any ? site_factor(states, site % 2 == 1 && !dir_.config().post_norms, where) : quant::Factor{};
      for (const model::LinearKind kind : nn::site_linears(site)) {
        const Matrix<float> w = quantize_linear(dir_.linear(layer, kind), factor, packed);
        const StageClock::Span span(run_.clock, "quantize: load");
        weights.linears[static_cast<size_t>(kind)] = decoder_.prepare(w);
      }
      const StageClock::Span span(run_.clock, "quantize: forward");
      for (size_t b = 0; b < states.batches.size(); ++b) {
        decoder_.advance(weights, layer, site, states.batches[b], states.carries[b]);
      }
    }
    dir_.release_layer(layer);
    return packed;
  }

  // The head reads the final norm of the states.
  PackedLinears quantize_head(States& states) {
    const backend::Tensor weight = decoder_.load_final_norm(dir_);
    for (nn::Carry& carry : states.carries) {
      carry.x = device_.allocate(carry.h.rows, carry.h.cols);
      device_.rms_norm(carry.h, weight, dir_.config().norm_eps, carry.x);
    }
    PackedLinears packed;
    pack_linear(dir_.head(), load_(dir_.head()), site_factor(states, false, "head"), packed);
    return packed;
  }

 private:
  // Factor of the Hessian of the states' current inputs. A site that leaves a module (`leaves_module`) weighs each
  // token by the inverse squared norm of the residual stream it writes to; elsewhere the norms before the linears have
  // made tokens equal.
  quant::Factor site_factor(const States& states, bool leaves_module, const std::string& where) {
    const size_t width = states.carries[0].x.cols;
    Matrix<float> hessian(width, width);
    {
      const StageClock::Span span(run_.clock, "quantize: Hessians");
      const backend::Tensor h = device_.allocate(width, width);
      device_.fill(h, 0);
      for (const nn::Carry& carry : states.carries) {
        const backend::Tensor weight = leaves_module ? inverse_norms(carry.h) : backend::Tensor{};
        device_.accumulate_gram(carry.x, leaves_module ? &weight : nullptr, h, run_.precision);
      }
      device_.read(h, hessian.span(), "Hessian");
    }
    const StageClock::Span span(run_.clock, "quantize: factors");
    quant::Factor factor = quant::factorize(device_, hessian.view(), kDamping, where);
    if (factor.identity) {
      run_.reporter.warn("quantize",
                         fmt::format("{}: the Hessian cannot be factored; its linears are rounded to nearest", where));
    } else if (factor.damping > kDamping) {
      run_.reporter.note("quantize", fmt::format("{}: the Hessian needed a damping of {:g}", where, factor.damping));
    }
    return factor;
  }

  backend::Tensor inverse_norms(const backend::Tensor& h) {
    const backend::Tensor norms = device_.allocate(h.rows, 1);
    device_.row_squared_norms(h, norms);
    std::vector<float> values(h.rows);
    device_.read(norms, values, "residual norms");
    for (float& v : values) v = v > 0 ? 1.0f / v : 0.0f;
    device_.upload(norms, std::span<const float>(values));
    return norms;
  }

  // The weights (out, in) that a loader of the output will see.
  Matrix<float> quantize_linear(const model::LinearInfo& info, const quant::Factor& factor, PackedLinears& packed) {
    Matrix<float> w = load_(info);
    if (plan_.layouts.contains(dir_.reference_name(info.key))) {
      return quant::dequantize(run_.pool(), pack_linear(info, std::move(w), factor, packed));
    }
    round_to_half_in_place(w, info.key);
    return w;
  }

  // Quantizes w (out, in) and appends its tensors.
  quant::QuantizedLinear pack_linear(const model::LinearInfo& info, Matrix<float> w, const quant::Factor& factor,
                                     PackedLinears& packed) {
    const std::string key = dir_.reference_name(info.key);
    quant::QuantizedLinear q = [&] {
      const StageClock::Span span(run_.clock, "quantize: GPTQ");
      Matrix<float> rows = quant::transposed_in_order(run_.pool(), w.view(), factor.order);
      w = Matrix<float>();
      return quant::quantize_gptq(device_, std::move(rows), static_cast<uint32_t>(info.out), factor,
                                  plan_.layouts.at(key));
    }();
    const StageClock::Span span(run_.clock, "quantize: pack and verify");
    packed.emplace_back(key, codec::pack(run_.pool(), q));
    verify(packed.back().second, q, key);
    return q;
  }

  void verify(const codec::Exl2Linear& packed, const quant::QuantizedLinear& q, const std::string& key) {
    const quant::QuantizedLinear back = codec::unpack(run_.pool(), packed, key);
    if (!equal(back.codes.span(), q.codes.span()) || !equal(back.scale_codes.span(), q.scale_codes.span()) ||
        back.scale_max != q.scale_max || back.order != q.order) {
      throw Error(ErrorCode::kInternal, fmt::format("{}: unpacking does not give the packed codes back", key));
    }
  }

  Run& run_;
  backend::Backend& device_;
  const model::ModelDir& dir_;
  const nn::Decoder& decoder_;
  const OutputPlan& plan_;
  nn::Decoder::LinearLoader load_;
};

}  // namespace

std::filesystem::path layer_file(const std::filesystem::path& layers_dir, size_t layer) {
  return layers_dir / fmt::format("layer-{:05}.safetensors", layer);
}

void quantize_layers(Run& run, const model::ModelDir& dir, const calib::Rows& rows, const OutputPlan& plan,
                     const std::filesystem::path& layers_dir) {
  const nn::Decoder decoder(*run.device, dir.config(), rows.length, run.precision);
  States states = embed_rows(decoder, dir, rows);
  LayerQuantizer quantizer(run, dir, decoder, plan);
  const size_t layers = dir.config().n_layers;
  const auto steps = static_cast<double>(layers + 1);
  for (size_t layer = 0; layer < layers; ++layer) {
    run.reporter.progress("quantize", static_cast<double>(layer), steps, fmt::format("layer {}", layer));
    write_linears(quantizer.quantize_layer(layer, states), plan, layer_file(layers_dir, layer));
  }
  run.reporter.progress("quantize", static_cast<double>(layers), steps, "head");
  if (plan.layouts.contains(dir.reference_name(dir.head().key))) {
    write_linears(quantizer.quantize_head(states), plan, layer_file(layers_dir, layers));
  }
  run.reporter.progress("quantize", steps, steps);
}

}  // namespace bw::pipeline
