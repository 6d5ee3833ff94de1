#include "pipeline/evaluate.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/utf8.h"
#include "bitwright/error.h"
#include "eval/statistics.h"
#include "io/text_rows.h"
#include "pipeline/stored_bits.h"

namespace bw::pipeline {
namespace {

constexpr size_t kLogitTokens = 128;  // rows of logits that exist at once, per model

// A model's final hidden states for all rows, and what turns them into logits.
class Scorer {
 public:
  Scorer(Run& run, const model::ModelDir& dir, const calib::Rows& rows, std::string_view what)
      : device_(*run.device), decoder_(*run.device, dir.config(), rows.length, run.precision) {
    states_ = embed_rows(decoder_, dir, rows);
    const auto load = linear_loader(dir, run.pool());
    const size_t layers = dir.config().n_layers;
    for (size_t layer = 0; layer < layers; ++layer) {
      run.reporter.progress("evaluate", static_cast<double>(layer), static_cast<double>(layers),
                            fmt::format("{}, layer {}", what, layer));
      dir.prefetch_layer(layer);
      const StageClock::Span span(run.clock, "evaluate: layers");
      const nn::LayerWeights weights = decoder_.load_layer(dir, layer, load);
      for (size_t b = 0; b < states_.batches.size(); ++b) {
        decoder_.forward_layer(weights, layer, states_.batches[b], states_.carries[b].h);
      }
      dir.release_layer(layer);
    }
    norm_ = decoder_.load_final_norm(dir);
    head_ = decoder_.prepare(load(dir.head()));
    logits_ = device_.allocate(kLogitTokens, head_->out());
  }

  const States& states() const { return states_; }
  size_t vocab() const { return head_->out(); }

  // Logits of `count` (at most kLogitTokens) tokens of a batch; valid until the next call.
  backend::Tensor logits(size_t batch, size_t first, size_t count) {
    const backend::Tensor out = logits_.rows_slice(0, count);
    decoder_.logits(states_.carries[batch].h.rows_slice(first, count), norm_, *head_, out);
    return out;
  }

 private:
  backend::Backend& device_;
  nn::Decoder decoder_;
  States states_;
  backend::Tensor norm_, logits_;
  std::shared_ptr<backend::Weight> head_;
};

// Tokens of one row that have a successor: `count` of batch `batch`, from its token `first` on.
struct Chunk {
  size_t batch, first, count;
  size_t row, position;  // of the first token
  std::vector<int32_t> targets;
};

// Calls visit(chunk) for all of them; between two, the user may end the run.
template <typename Visit>
void for_each_chunk(const Run& run, const States& states, const calib::Rows& rows, const Visit& visit) {
  size_t row = 0;
  for (size_t b = 0; b < states.batches.size(); ++b) {
    const nn::RowBatch& batch = states.batches[b];
    for (size_t s = 0; s < batch.sequences; ++s, ++row) {
      const std::span<const uint32_t> ids = rows.row(row);
      for (size_t at = 0; at + 1 < batch.length; at += kLogitTokens) {
        run.reporter.check_interrupted();
        const size_t count = std::min(kLogitTokens, batch.length - 1 - at);
        const auto next = ids.subspan(at + 1, count);
        visit(Chunk{b, s * batch.length + at, count, row, at, std::vector<int32_t>(next.begin(), next.end())});
      }
    }
  }
}

backend::Tensor upload_targets(backend::Backend& device, std::span<const int32_t> targets) {
  const backend::Tensor t = device.allocate(targets.size(), 1, backend::DType::kI32);
  device.upload(t, targets);
  return t;
}

// Throws if a value is not finite: the log-probabilities of `which` for token `i` of the chunk.
void check_finite(float value, const Chunk& chunk, size_t i, const std::filesystem::path& which) {
  if (std::isfinite(value)) return;
  throw Error(ErrorCode::kNumeric,
              fmt::format("row {}, position {}: the log-probabilities of {} are not finite", chunk.row,
                          chunk.position + i, which.string()),
              "its weights are damaged, or its activations are too large for the arithmetic");
}

EvaluateResult score(Run& run, Scorer& model, const calib::Rows& rows, const EvaluateOptions& options) {
  std::vector<double> nll;
  for_each_chunk(run, model.states(), rows, [&](const Chunk& chunk) {
    const backend::Tensor out = run.device->allocate(chunk.count, 1);
    run.device->token_nll(model.logits(chunk.batch, chunk.first, chunk.count),
                          upload_targets(*run.device, chunk.targets), out);
    std::vector<float> values(chunk.count);
    run.device->read(out, values, "token nll");
    for (size_t i = 0; i < chunk.count; ++i) check_finite(values[i], chunk, i, options.model);
    nll.insert(nll.end(), values.begin(), values.end());
  });
  EvaluateResult r;
  r.tokens = nll.size();
  r.perplexity = eval::perplexity(nll);
  return r;
}

EvaluateResult compare(Run& run, Scorer& reference, Scorer& model, const calib::Rows& rows,
                       const EvaluateOptions& options) {
  eval::TokenComparison t;
  for_each_chunk(run, model.states(), rows, [&](const Chunk& chunk) {
    const backend::Tensor out = run.device->allocate(chunk.count, 4);
    const backend::Tensor p = reference.logits(chunk.batch, chunk.first, chunk.count);
    const backend::Tensor q = model.logits(chunk.batch, chunk.first, chunk.count);
    run.device->compare_logits(p, q, upload_targets(*run.device, chunk.targets), out);
    std::vector<float> values(chunk.count * 4);
    run.device->read(out, values, "token comparison");
    for (size_t i = 0; i < chunk.count; ++i) {
      check_finite(values[4 * i + 1], chunk, i, *options.reference);
      check_finite(values[4 * i + 2], chunk, i, options.model);
      check_finite(values[4 * i], chunk, i, options.model);
      t.kld.push_back(values[4 * i]);
      t.nll_reference.push_back(values[4 * i + 1]);
      t.nll.push_back(values[4 * i + 2]);
      t.same_top.push_back(values[4 * i + 3]);
    }
  });
  return eval::summarize(t);
}

calib::Rows evaluation_rows(const model::ModelDir& dir, const EvaluateOptions& options) {
  const auto tokenizer = tokenizer::Tokenizer::load(dir.path());
  std::vector<uint32_t> stream;
  for (const io::TextDocument& document : io::read_documents(options.text)) {
    if (document.is_chat) {
      throw Error(
          ErrorCode::kModel,
          fmt::format("{}, line {}: it holds messages; eval scores plain text", options.text.string(), document.line),
          "give a .txt file, or \"text\" keys");
    }
    const std::vector<uint32_t> ids = calib::tokenize_long(tokenizer, document.text, true);
    stream.insert(stream.end(), ids.begin(), ids.end());
  }
  calib::Rows rows = calib::rows_from_stream(stream, tokenizer.prefix_ids(), options.rows, options.length,
                                             options.text.filename().string());
  calib::check_ids(rows, tokenizer, dir.vocab_rows());
  return rows;
}

}  // namespace

EvaluateResult evaluate_model(Run& run, const EvaluateOptions& options) {
  const model::ModelDir dir(options.model, true);
  std::optional<model::ModelDir> reference;
  if (options.reference) reference.emplace(*options.reference, true);
  // The reference's tokenizer decides, so that every model that is compared to it sees the same rows.
  const calib::Rows rows = evaluation_rows(reference ? *reference : dir, options);
  if (reference && reference->vocab_rows() != dir.vocab_rows()) {
    throw Error(ErrorCode::kModel, fmt::format("{} has {} tokens, its reference {} has {}: they cannot be compared",
                                               options.model.string(), dir.vocab_rows(), options.reference->string(),
                                               reference->vocab_rows()));
  }
  warn_beyond_positions(run, dir, options.length);
  Scorer model(run, dir, rows, "model");
  std::optional<Scorer> original;
  if (reference) original.emplace(run, *reference, rows, "reference");
  EvaluateResult r;
  const StageClock::Span span(run.clock, "evaluate: logits");
  if (reference) {
    r = compare(run, *original, model, rows, options);
    r.reference_bytes = reference->tensors().file_bytes();
    r.reference_bpw_linears = bpw_of_linears(*reference);
    r.reference_bpw_head = bpw_of_head(*reference);
  } else {
    r = score(run, model, rows, options);
  }
  run.reporter.progress("evaluate", 1, 1);
  r.rows = rows.count();
  r.length = rows.length;
  r.bytes = dir.tensors().file_bytes();
  r.bpw_linears = bpw_of_linears(dir);
  r.bpw_head = bpw_of_head(dir);
  return r;
}

}  // namespace bw::pipeline
