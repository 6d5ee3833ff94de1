#include "pipeline/quantize.h"

#include <optional>

#include <fmt/format.h>

#include "pipeline/layer_feed.h"
#include "pipeline/layer_quantizer.h"

namespace bw::pipeline {
namespace {

void note_oddities(const PendingLinears::FactorStatus& f, Reporter& reporter) {
  const quant::FactorReport factor = quant::factor_report(f.status.as<int32_t>(), f.damping, f.where);
  if (factor.identity) {
    reporter.warn("quantize", fmt::format("{}: the Hessian cannot be factored; it is rounded to nearest", f.where));
  } else if (factor.damping > f.damping) {
    reporter.note("quantize", fmt::format("{}: the Hessian needed a damping of {:g}", f.where, factor.damping));
  }
}

constexpr const char* kStates = "states.piece";
// Of a layer's time, what rounding takes (docs/performance.md): that of the head is nothing else.
constexpr double kHeadWork = 0.15;

class QuantizeStage {
 public:
  QuantizeStage(Run& run, const model::ModelDir& dir, const CalibrationData& calibration, const OutputPlan& plan,
                Effort effort, const io::PieceDir& layers, const StageWork& work)
      : run_(run),
        dir_(dir),
        plan_(plan),
        layers_(layers),
        work_(work),
        calibration_(calibration),
        decoder_(*run.device, dir.config(), calibration.rows.length, run.precision),
        load_(linear_loader(dir, *run.device)),
        streams_{embed_rows(run, decoder_, dir, calibration.rows, layers.path(), kStreams),
                 embed_rows(run, decoder_, dir, calibration.rows, layers.path(), kStreams)},
        range_(*run.device, dir.config()),
        trace_(*run.device, decoder_, dir, calibration.held_out),
        quantizer_(run, dir, decoder_, plan, rounding_effort(effort), calibration.rows.ids.size(), calibration.gains,
                   {range_, trace_}) {}

  StreamComparison run() {
    const size_t layers = dir_.config().n_layers, done = resume();
    const double steps = static_cast<double>(layers) + kHeadWork * layers_in_head(dir_);
    LayerFeed feed(run_, dir_, decoder_, load_, "quantize", LayerFeed::Order::kForward, done);
    for (size_t layer = done; layer < layers; ++layer) {
      run_.reporter.progress("quantize", static_cast<double>(layer), steps, fmt::format("layer {}", layer), "layers");
      PendingLinears next = quantizer_.enqueue_layer(layer, feed.next(), streams_);
      feed.all_enqueued();
      write_pending();  // of the layer before: the device has been given this one
      pending_.emplace(layer, std::move(next));
      if (work_.job.due()) save(layer + 1);
    }
    write_pending();
    run_.reporter.progress("quantize", static_cast<double>(layers), steps, "head", "layers");
    backend::Tensor head;
    if (plan_.layouts.contains(dir_.reference_name(dir_.head().key))) {
      auto [linears, values] = quantizer_.enqueue_head(streams_);
      pending_.emplace(layers, std::move(linears));
      head = std::move(values);
      write_pending();
    } else {
      head = quantizer_.plain_head();
    }
    StreamComparison result = compare_streams(run_, dir_, decoder_, calibration_, std::move(head), trace_, streams_);
    range_.tell(run_.reporter);
    run_.reporter.progress("quantize", steps, steps, {}, "layers");
    return result;
  }

 private:
  static constexpr size_t kStreams = 2;

  // Layers that an earlier run has finished; the streams are then behind them.
  size_t resume() {
    size_t done = 0;
    const bool kept = work_.job.read(layers_, kStates, work_.key, [&](io::PieceReader& piece) {
      done = piece.number("done", dir_.config().n_layers);
      const size_t states = streams_.quantized.bytes() + streams_.original.bytes();
      if (piece.left() != states + range_.bytes() + trace_.bytes(done)) return false;
      if (!has_layers(done)) done = 0;
      if (done == 0) return true;
      streams_.quantized.restore(piece);
      streams_.original.restore(piece);
      range_.restore(piece);
      trace_.restore(done, piece);
      return true;
    });
    if (!kept || done == 0) return 0;
    work_.job.tell_resumed(fmt::format("{} of {} layers are quantized already", done, dir_.config().n_layers));
    return done;
  }

  bool has_layers(size_t end) const {
    for (size_t layer = 0; layer < end; ++layer) {
      const auto understood = [&](const io::PieceReader&) { return holds_linears(layer); };
      if (!work_.job.read(layers_, layer_piece(layer), work_.key, understood)) return false;
    }
    return true;
  }

  // Whether the layer's file has the tensors of all its linears. Throws what ShardSet does.
  bool holds_linears(size_t layer) const {
    const io::ShardSet file(layers_.file(layer_piece(layer)));
    for (size_t kind = 0; kind < model::kLinearsPerLayer; ++kind) {
      const model::LinearInfo info = dir_.linear(layer, static_cast<model::LinearKind>(kind));
      const auto layout = plan_.layouts.find(dir_.reference_name(info.key));
      if (layout == plan_.layouts.end()) continue;
      const auto out = static_cast<uint32_t>(info.out);
      for (const io::TensorPlan& wanted : codec::tensor_plans(layout->first, layout->second, out)) {
        const io::TensorEntry* found = file.find_entry(wanted.name);
        if (!found || found->type != wanted.type || found->shape != wanted.shape) return false;
      }
    }
    return true;
  }

  void save(size_t done) {
    write_pending();
    const StageClock::Span span(run_.clock, "quantize: save states");
    io::PieceWriter piece(layers_, kStates, {{"done", done}});
    streams_.quantized.save(piece);
    streams_.original.save(piece);
    range_.save(piece);
    trace_.save(piece);
    piece.seal(work_.key);
    work_.job.saved();
  }

  // Waits for the codes, checks them and writes them.
  void write_pending() {
    if (!pending_) return;
    auto [layer, pending] = std::move(*pending_);
    pending_.reset();
    const StageClock::Span span(run_.clock, "quantize: write");
    std::vector<std::pair<std::string, codec::Exl2Linear>> linears;
    if (!pending.linears.empty()) run_.device->wait(pending.linears.back().second.differences, "codes");
    for (const PendingLinears::FactorStatus& factor : pending.factors) {
      run_.device->wait(factor.status, "codes");
      note_oddities(factor, run_.reporter);
    }
    std::vector<io::TensorPlan> plans;
    for (auto& [key, packed] : pending.linears) {
      linears.emplace_back(key, codec::finish(*run_.device, std::move(packed), key));
      for (io::TensorPlan& p : codec::tensor_plans(key, plan_.layouts.at(key), linears.back().second.out)) {
        plans.push_back(std::move(p));
      }
    }
    const size_t parts = linears.empty() ? 1 : plans.size() / linears.size();
    const std::string name = layer_piece(layer);
    io::write_safetensors(layers_.file(name), plans,
                          [&](size_t i) { return codec::tensor_bytes(linears[i / parts].second, i % parts); });
    layers_.seal(name, work_.key);
  }

  Run& run_;
  const model::ModelDir& dir_;
  const OutputPlan& plan_;
  const io::PieceDir& layers_;
  const StageWork& work_;
  const CalibrationData& calibration_;
  nn::Decoder decoder_;
  nn::Decoder::LinearLoader load_;
  Streams streams_;
  StateRange range_;
  LayerTrace trace_;
  LayerQuantizer quantizer_;
  std::optional<std::pair<size_t, PendingLinears>> pending_;  // the last layer, its codes on their way to the host
};

}  // namespace

std::string layer_piece(size_t layer) { return fmt::format("layer-{:05}.piece.safetensors", layer); }

void discard_layers(const io::PieceDir& layers, size_t n_layers) {
  layers.discard(kStates);  // first: what is left of the others means nothing without it
  for (size_t layer = 0; layer <= n_layers; ++layer) layers.discard(layer_piece(layer));
}

StreamComparison quantize_layers(Run& run, const model::ModelDir& dir, const CalibrationData& calibration,
                                 const OutputPlan& plan, Effort effort, const io::PieceDir& layers,
                                 const StageWork& work) {
  return QuantizeStage(run, dir, calibration, plan, effort, layers, work).run();
}

}  // namespace bw::pipeline
