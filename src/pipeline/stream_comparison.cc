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
  void compare(const nn::Carry& original, const nn::Carry& quantized, size_t first, const Tensor& targets,
               const Tensor& out) {
    const Tensor reference = logits_of(original.h.rows_slice(first, targets.rows));
    compare(reference, quantized_.head, quantized.h.rows_slice(first, targets.rows), targets, out);
  }

  // The branches of the trace, the whole stream before and behind its head; tokens of the first row. out: four values
  // for each token of the first, then of the next.
  void compare(const LayerTrace& trace, const nn::Carry& original, const nn::Carry& quantized, const Tensor& targets,
               const Tensor& out) {
    for (size_t first = 0; first < targets.rows; first += kLogitTokens) {
      const size_t count = std::min(kLogitTokens, targets.rows - first);
      const auto part = [&](const Tensor& t) { return t.rows_slice(first, count); };
      const Tensor reference = logits_of(part(original.h));
      size_t point = 0;
      const auto add = [&](const std::shared_ptr<const backend::Weight>& head, const Tensor& h) {
        const Tensor values = out.rows_slice(point++ * targets.rows + first, count);
        compare(reference, head, part(h), part(targets), values);
      };
      for (const LayerTrace::Branch& branch : trace.branches()) add(original_.head, branch.h);
      add(original_.head, quantized.h);
      add(quantized_.head, quantized.h);
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

// values: as Comparer gives them, for `tokens` of each point.
std::vector<TracedKld> traced(const LayerTrace& trace, std::span<const float> values, size_t tokens, size_t layers) {
  std::vector<TracedKld> points;
  for (const LayerTrace::Branch& branch : trace.branches()) points.push_back({branch.quantized_layers, false, {}});
  points.push_back({layers, false, {}});
  points.push_back({layers, true, {}});
  BW_CHECK(values.size() == 4 * tokens * points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    points[i].kld = eval::mean(tokens_of(values.subspan(4 * tokens * i, 4 * tokens)).kld);
  }
  return points;
}

}  // namespace

StreamComparison compare_streams(Run& run, const model::ModelDir& dir, const nn::Decoder& decoder,
                                 const calib::Rows& rows, Tensor quantized_head, const LayerTrace& trace,
                                 Streams& streams) {
  const StageClock::Span span(run.clock, "quantize: compare");
  backend::Backend& device = *run.device;
  Comparer comparer(run, dir, decoder, std::move(quantized_head));
  const Chosen chosen = choose(streams.quantized, rows);
  const Tensor targets = device.upload<int32_t>(chosen.targets, chosen.targets.size(), 1);
  const Tensor out = device.allocate(chosen.targets.size(), 4);
  // Of the first row's traced tokens, those that have a successor.
  const std::vector<int32_t> successors(rows.ids.begin() + 1,
                                        rows.ids.begin() + std::min(trace.tokens() + 1, rows.length));
  const Tensor traced_targets = device.upload<int32_t>(successors, successors.size(), 1);
  const Tensor traced_out = device.allocate((trace.branches().size() + 2) * successors.size(), 4);
  size_t batch = 0, at = 0;
  auto chunk = chosen.chunks.begin();
  streams.for_each([&](const nn::RowBatch&, nn::Carry& carry, nn::Carry& other) {
    if (batch == 0) comparer.compare(trace, other, carry, traced_targets, traced_out);
    for (; chunk != chosen.chunks.end() && chunk->batch == batch; ++chunk) {
      comparer.compare(other, carry, chunk->state, targets.rows_slice(at, chunk->count),
                       out.rows_slice(at, chunk->count));
      at += chunk->count;
    }
    ++batch;
  });
  const backend::HostTensor values = device.download(out), traced_values = device.download(traced_out);
  device.wait(values, "scores");
  device.wait(traced_values, "scores");
  return {eval::summarize(tokens_of(values.as<const float>())),
          traced(trace, traced_values.as<const float>(), successors.size(), dir.config().n_layers)};
}

}  // namespace bw::pipeline
