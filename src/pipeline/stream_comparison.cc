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

EvaluateResult summary_of(std::span<const float> values) {
  if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) {
    throw Error(ErrorCode::kNumeric, "the log-probabilities of the quantized model or of the original are not finite",
                "the model's weights are damaged, or its activations are too large for the arithmetic");
  }
  eval::TokenComparison tokens;
  append_comparison(values, tokens);
  return eval::summarize(tokens);
}

}  // namespace

EvaluateResult compare_streams(Run& run, const model::ModelDir& dir, const nn::Decoder& decoder,
                               const calib::Rows& rows, Tensor quantized_head, Streams& streams) {
  const StageClock::Span span(run.clock, "quantize: compare");
  backend::Backend& device = *run.device;
  const Tensor norm = decoder.load_final_norm(dir);
  const auto end_with = [&](const Tensor& head) {
    return End{decoder.pack(head), device.allocate(kLogitTokens, head.rows)};
  };
  const End quantized = end_with(std::exchange(quantized_head, {}));  // its values go before the original's come
  const End original = end_with(linear_loader(dir, device)(dir.head()));
  const auto logits = [&](const End& end, const Tensor& h) {
    const Tensor out = end.logits.rows_slice(0, h.rows);
    decoder.logits(h, norm, end.head, out);
    return out;
  };
  const Chosen chosen = choose(streams.quantized, rows);
  const Tensor targets = device.upload<int32_t>(chosen.targets, chosen.targets.size(), 1);
  const Tensor out = device.allocate(chosen.targets.size(), 4);
  size_t batch = 0, at = 0;
  auto chunk = chosen.chunks.begin();
  streams.for_each([&](const nn::RowBatch&, nn::Carry& carry, nn::Carry& other) {
    for (; chunk != chosen.chunks.end() && chunk->batch == batch; ++chunk) {
      device.enqueue(backend::op::CompareLogits{logits(original, other.h.rows_slice(chunk->state, chunk->count)),
                                                logits(quantized, carry.h.rows_slice(chunk->state, chunk->count)),
                                                targets.rows_slice(at, chunk->count),
                                                out.rows_slice(at, chunk->count)});
      at += chunk->count;
    }
    ++batch;
  });
  const backend::HostTensor values = device.download(out);
  device.wait(values, "scores");
  return summary_of(values.as<const float>());
}

}  // namespace bw::pipeline
