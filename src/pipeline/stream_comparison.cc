#include "pipeline/stream_comparison.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "pipeline/scoring.h"

namespace bw::pipeline {
namespace {

using backend::Tensor;

constexpr size_t kComparedTokens = 2048;

// One of the two models' ends.
struct End {
  std::shared_ptr<const backend::Weight> head;
  Tensor logits;
};

// Tokens of a batch that are compared.
struct Chunk {
  size_t batch, state, count;
};

struct Chosen {
  std::vector<Chunk> chunks;
  std::vector<int32_t> targets;  // what follows their tokens
};

// Chunks at even distances through all rows.
Chosen choose(const States& states, const calib::Rows& rows) {
  const size_t stride = std::max<size_t>(1, rows.ids.size() / kComparedTokens);  // one in so many
  Chosen chosen;
  size_t row = 0, number = 0;
  for (size_t b = 0; b < states.count(); ++b) {
    const nn::RowBatch& batch = states.batch(b);
    for_each_chunk(batch, [&](size_t state, size_t, size_t count) {
      if (number++ % stride != 0) return;
      chosen.chunks.push_back({b, state, count});
      const uint32_t* successors = rows.ids.data() + row * rows.length + state + 1;
      chosen.targets.insert(chosen.targets.end(), successors, successors + count);
    });
    row += batch.sequences;
  }
  return chosen;
}

void check_finite(std::span<const float> values) {
  if (std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) return;
  throw Error(ErrorCode::kNumeric, "the log-probabilities of the quantized model or of the original are not finite",
              "the model's weights are damaged, or its activations are too large for the arithmetic");
}

class Comparer {
 public:
  Comparer(Run& run, const model::ModelDir& dir, const nn::Decoder& decoder, Tensor quantized_head)
      : device_(*run.device),
        decoder_(decoder),
        norm_(decoder.load_final_norm(dir)),
        quantized_(end_with(std::exchange(quantized_head, {}))),  // its values go before the original's come
        original_(end_with(linear_loader(dir, device_)(dir.head()))) {}

  // Of some tokens, four values each (see op::CompareLogits).
  void compare(const Tensor& original, const Tensor& quantized, const Tensor& targets, const Tensor& out) {
    compare(logits_of(original), quantized_.head, quantized, targets, out);
  }

  // The first row of the trace: its branches, the whole model's states before and behind its head. out: four values for
  // each token of the first, then of the next.
  void compare(const LayerTrace& trace, const Tensor& targets, const Tensor& out) {
    for (size_t first = 0; first < targets.rows; first += kLogitTokens) {
      const size_t count = std::min(kLogitTokens, targets.rows - first);
      const auto part = [&](const Tensor& t) { return t.rows_slice(first, count); };
      const Tensor reference = logits_of(part(trace.original()));
      size_t point = 0;
      const auto add = [&](const std::shared_ptr<const backend::Weight>& head, const Tensor& h) {
        compare(reference, head, part(h), part(targets), out.rows_slice(point++ * targets.rows + first, count));
      };
      for (const LayerTrace::Branch& branch : trace.branches()) add(original_.head, branch.h);
      add(original_.head, trace.quantized());
      add(quantized_.head, trace.quantized());
    }
  }

 private:
  End end_with(const Tensor& head) { return {decoder_.pack(head), device_.allocate(kLogitTokens, head.rows)}; }

  // What the original says; until the next call.
  Tensor logits_of(const Tensor& h) {
    const Tensor out = original_.logits.rows_slice(0, h.rows);
    decoder_.logits(h, norm_, original_.head, out);
    return out;
  }

  void compare(const Tensor& reference, const std::shared_ptr<const backend::Weight>& head, const Tensor& h,
               const Tensor& targets, const Tensor& out) {
    const Tensor logits = quantized_.logits.rows_slice(0, h.rows);
    decoder_.logits(h, norm_, head, logits);
    device_.enqueue(backend::op::CompareLogits{reference, logits, targets, out});
  }

  backend::Backend& device_;
  const nn::Decoder& decoder_;
  Tensor norm_;
  End quantized_, original_;
};

eval::TokenComparison tokens_of(std::span<const float> values) {
  check_finite(values);
  eval::TokenComparison tokens;
  append_comparison(values, tokens);
  return tokens;
}

// On some of the calibration tokens.
EvaluateResult compare_fitted(Run& run, const calib::Rows& rows, Comparer& comparer, Streams& streams) {
  backend::Backend& device = *run.device;
  const Chosen chosen = choose(streams.quantized, rows);
  const Tensor targets = device.upload<int32_t>(chosen.targets, chosen.targets.size(), 1);
  const Tensor out = device.allocate(chosen.targets.size(), 4);
  size_t batch = 0, at = 0;
  auto chunk = chosen.chunks.begin();
  streams.for_each([&](const nn::RowBatch&, nn::Carry& carry, nn::Carry& other) {
    for (; chunk != chosen.chunks.end() && chunk->batch == batch; ++chunk) {
      comparer.compare(other.h.rows_slice(chunk->state, chunk->count), carry.h.rows_slice(chunk->state, chunk->count),
                       targets.rows_slice(at, chunk->count), out.rows_slice(at, chunk->count));
      at += chunk->count;
    }
    ++batch;
  });
  const backend::HostTensor values = device.download(out);
  device.wait(values, "scores");
  return eval::summarize(tokens_of(values.as<const float>()));
}

// What follows the tokens of all rows but their last, on the device.
Tensor upload_successors(backend::Backend& device, const calib::Rows& rows) {
  std::vector<int32_t> successors;
  for (size_t i = 0; i < rows.count(); ++i) {
    const auto row = rows.row(i);
    successors.insert(successors.end(), row.begin() + 1, row.end());
  }
  return device.upload<int32_t>(successors, successors.size(), 1);
}

// On the rows that are held out.
StreamComparison compare_held_out(Run& run, const calib::Rows& rows, Comparer& comparer, const LayerTrace& trace) {
  backend::Backend& device = *run.device;
  const Tensor targets = upload_successors(device, rows);
  const Tensor out = device.allocate(targets.rows, 4);
  for_each_chunk(trace.batch(), [&](size_t state, size_t token, size_t count) {
    comparer.compare(trace.original().rows_slice(state, count), trace.quantized().rows_slice(state, count),
                     targets.rows_slice(token, count), out.rows_slice(token, count));
  });
  const size_t of_row = rows.length - 1, layers = trace.layers();
  std::vector<TracedKld> points;
  for (const LayerTrace::Branch& branch : trace.branches()) points.push_back({branch.quantized_layers, false, {}});
  points.push_back({layers, false, {}});
  points.push_back({layers, true, {}});
  const Tensor traced_out = device.allocate(points.size() * of_row, 4);
  comparer.compare(trace, targets.rows_slice(0, of_row), traced_out);
  const backend::HostTensor values = device.download(out), traced = device.download(traced_out);
  device.wait(values, "scores");
  device.wait(traced, "scores");
  for (size_t i = 0; i < points.size(); ++i) {
    const auto of_point = traced.as<const float>().subspan(4 * of_row * i, 4 * of_row);
    points[i].kld = eval::mean(tokens_of(of_point).kld);
  }
  return {eval::summarize(tokens_of(values.as<const float>())), true, std::move(points)};
}

}  // namespace

StreamComparison compare_streams(Run& run, const model::ModelDir& dir, const nn::Decoder& decoder,
                                 const CalibrationData& calibration, Tensor quantized_head, const LayerTrace& trace,
                                 Streams& streams) {
  const StageClock::Span span(run.clock, "quantize: compare");
  Comparer comparer(run, dir, decoder, std::move(quantized_head));
  if (!trace.is_empty()) return compare_held_out(run, calibration.held_out, comparer, trace);
  return {compare_fitted(run, calibration.rows, comparer, streams), false, {}};
}

}  // namespace bw::pipeline
