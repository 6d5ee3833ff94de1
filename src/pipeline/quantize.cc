#include "pipeline/quantize.h"

#include <optional>

#include <fmt/format.h>

#include "pipeline/layer_feed.h"
#include "pipeline/layer_quantizer.h"

namespace bw::pipeline {
namespace {

void note_oddities(const quant::FactorReport& factor, const std::string& where, Reporter& reporter) {
  if (factor.identity) {
    reporter.warn("quantize", fmt::format("{}: the Hessian cannot be factored; it is rounded to nearest", where));
  } else if (factor.damping > kDamping) {
    reporter.note("quantize", fmt::format("{}: the Hessian needed a damping of {:g}", where, factor.damping));
  }
}

// Waits for the codes, checks them and writes them to a file.
void write(Run& run, const OutputPlan& plan, PendingLinears pending, const std::filesystem::path& path) {
  const StageClock::Span span(run.clock, "quantize: write");
  std::vector<std::pair<std::string, codec::Exl2Linear>> linears;
  if (!pending.linears.empty()) run.device->wait(pending.linears.back().second.differences, "codes");
  for (auto& [where, status] : pending.statuses) {
    run.device->wait(status, "codes");
    note_oddities(quant::factor_report(status.as<int32_t>(), kDamping, where), where, run.reporter);
  }
  std::vector<io::TensorPlan> plans;
  for (auto& [key, packed] : pending.linears) {
    linears.emplace_back(key, codec::finish(*run.device, std::move(packed), key));
    for (io::TensorPlan& p : codec::tensor_plans(key, plan.layouts.at(key), linears.back().second.out)) {
      plans.push_back(std::move(p));
    }
  }
  const size_t parts = linears.empty() ? 1 : plans.size() / linears.size();
  io::write_safetensors(path, plans,
                        [&](size_t i) { return codec::tensor_bytes(linears[i / parts].second, i % parts); });
}

}  // namespace

std::filesystem::path layer_file(const std::filesystem::path& layers_dir, size_t layer) {
  return layers_dir / fmt::format("layer-{:05}.safetensors", layer);
}

void quantize_layers(Run& run, const model::ModelDir& dir, const calib::Rows& rows, const TokenGains& gains,
                     const OutputPlan& plan, Effort effort, const std::filesystem::path& layers_dir) {
  const nn::Decoder decoder(*run.device, dir.config(), rows.length, run.precision);
  const RoundingEffort rounding = rounding_effort(effort);
  const size_t copies = rounding.correction > 0 ? 2 : 1;
  Streams streams{embed_rows(run, decoder, dir, rows, copies), std::nullopt};
  if (copies == 2) streams.original.emplace(embed_rows(run, decoder, dir, rows, copies));
  const nn::Decoder::LinearLoader load = linear_loader(dir, *run.device);
  LayerFeed feed(run, dir, decoder, load, "quantize");
  LayerQuantizer quantizer(run, dir, decoder, plan, rounding);
  const size_t layers = dir.config().n_layers;
  const auto steps = static_cast<double>(layers + 1);
  // Of the layer before: the device is given the next one before it is waited for.
  std::optional<PendingLinears> pending;
  for (size_t layer = 0; layer < layers; ++layer) {
    run.reporter.progress("quantize", static_cast<double>(layer), steps, fmt::format("layer {}", layer));
    PendingLinears next = quantizer.enqueue_layer(layer, feed.next(), gains.layers[layer], streams);
    feed.all_enqueued();
    if (pending) write(run, plan, std::move(*pending), layer_file(layers_dir, layer - 1));
    pending = std::move(next);
  }
  if (pending) write(run, plan, std::move(*pending), layer_file(layers_dir, layers - 1));
  run.reporter.progress("quantize", static_cast<double>(layers), steps, "head");
  if (plan.layouts.contains(dir.reference_name(dir.head().key))) {
    write(run, plan, quantizer.enqueue_head(gains.head, streams), layer_file(layers_dir, layers));
  }
  run.reporter.progress("quantize", steps, steps);
}

}  // namespace bw::pipeline
