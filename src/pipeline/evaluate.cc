#include "pipeline/evaluate.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/utf8.h"
#include "bitwright/error.h"
#include "io/text_rows.h"
#include "pipeline/layer_feed.h"
#include "pipeline/scoring.h"
#include "pipeline/stored_bits.h"

namespace bw::pipeline {
namespace {

// In layers; a head counts as much as the layers it weighs as.
struct Work {
  double done = 0, total = 0, heads = 0;
};

void tell(const Run& run, const Work& work, std::string text = {}) {
  run.reporter.progress("evaluate", work.done, work.total, std::move(text), "layers");
}

// A model's final hidden states for all rows, and what turns them into logits.
class Scorer {
 public:
  Scorer(Run& run, const model::ModelDir& dir, const calib::Rows& rows, std::string_view what, Work& work)
      : device_(*run.device),
        decoder_(*run.device, dir.config(), rows.length, run.precision),
        states_(embed_rows(run, decoder_, dir, rows, {})) {
    const nn::Decoder::LinearLoader load = linear_loader(dir, device_);
    LayerFeed feed(run, dir, decoder_, load, "evaluate");
    const size_t layers = dir.config().n_layers;
    for (size_t layer = 0; layer < layers; ++layer) {
      tell(run, work, fmt::format("{}, layer {}", what, layer));
      work.done += 1;
      forward_layer(run, layer, feed.next());
      feed.all_enqueued();
    }
    norm_ = decoder_.load_final_norm(dir);
    head_ = decoder_.pack(load(dir.head()));
    logits_ = device_.allocate(kLogitTokens, head_->out());
  }

  const States& states() const { return states_; }
  // Final hidden states of a batch, which are given up.
  backend::Tensor take(size_t batch) { return states_.take(batch); }

  // Logits of at most kLogitTokens tokens with final states h; valid until the next call.
  backend::Tensor logits(const backend::Tensor& h) {
    const backend::Tensor out = logits_.rows_slice(0, h.rows);
    decoder_.logits(h, norm_, head_, out);
    return out;
  }

 private:
  void forward_layer(Run& run, size_t layer, nn::LayerWeights weights) {
    const StageClock::Span span(run.clock, "evaluate: layers");
    decoder_.pack(weights, false);
    states_.for_each(
        [&](const nn::RowBatch& batch, nn::Carry& carry) { decoder_.forward_layer(weights, layer, batch, carry.h); });
  }

  backend::Backend& device_;
  nn::Decoder decoder_;
  States states_;
  backend::Tensor norm_, logits_;
  std::shared_ptr<const backend::Weight> head_;
};

// The scored tokens of a batch (see for_each_chunk).
struct Scored {
  size_t first_row;            // of the batch
  backend::HostTensor values;  // (tokens, values per token), on their way to the host
};

// The tokens that follow the scored ones, on the device.
backend::Tensor upload_targets(backend::Backend& device, const nn::RowBatch& batch, size_t first_row,
                               const calib::Rows& rows) {
  backend::HostTensor targets = device.stage(batch.sequences * (batch.length - 1), 1, backend::DType::kI32);
  int32_t* to = targets.as<int32_t>().data();
  for (size_t s = 0; s < batch.sequences; ++s) {
    const auto row = rows.row(first_row + s);
    to = std::copy(row.begin() + 1, row.end(), to);
  }
  return device.upload(std::move(targets));
}

// The values that `enqueue(h of each model, targets, out)` gives for every scored token, `values` each; on their way to
// the host.
template <typename Enqueue>
std::vector<Scored> score_batches(Run& run, const std::vector<Scorer*>& models, const calib::Rows& rows, size_t values,
                                  Work& work, const Enqueue& enqueue) {
  std::vector<Scored> scored;
  size_t row = 0;
  const States& states = models[0]->states();
  for (size_t b = 0; b < states.count(); ++b) {
    tell(run, work, "logits");
    work.done += work.heads / static_cast<double>(states.count());
    const nn::RowBatch& batch = states.batch(b);
    std::vector<backend::Tensor> h;
    for (Scorer* m : models) h.push_back(m->take(b));
    const backend::Tensor targets = upload_targets(*run.device, batch, row, rows);
    const backend::Tensor out = run.device->allocate(targets.rows, values);
    for_each_chunk(batch, [&](size_t state, size_t token, size_t count) {
      run.reporter.check_interrupted();
      std::vector<backend::Tensor> chunk;
      for (const backend::Tensor& t : h) chunk.push_back(t.rows_slice(state, count));
      enqueue(chunk, targets.rows_slice(token, count), out.rows_slice(token, count));
    });
    scored.push_back({row, run.device->download(out)});
    row += batch.sequences;
  }
  for (auto s = scored.rbegin(); s != scored.rend(); ++s) run.device->wait(s->values, "scores");
  return scored;
}

// Throws if a value is not finite: the log-probabilities of `which` for scored token `i` of a batch.
void check_finite(float value, const Scored& scored, size_t i, size_t length, const std::filesystem::path& which) {
  if (std::isfinite(value)) return;
  throw Error(ErrorCode::kNumeric,
              fmt::format("row {}, position {}: the log-probabilities of {} are not finite",
                          scored.first_row + i / (length - 1), i % (length - 1), which.string()),
              "its weights are damaged, or its activations are too large for the arithmetic");
}

EvaluateResult score(Run& run, Scorer& model, const calib::Rows& rows, const EvaluateOptions& options, Work& work) {
  const auto scored = score_batches(
      run, {&model}, rows, 1, work,
      [&](const std::vector<backend::Tensor>& h, const backend::Tensor& targets, const backend::Tensor& out) {
        run.device->enqueue(backend::op::TokenNll{model.logits(h[0]), targets, out});
      });
  std::vector<double> nll;
  for (const Scored& s : scored) {
    const auto values = s.values.as<const float>();
    for (size_t i = 0; i < values.size(); ++i) check_finite(values[i], s, i, rows.length, options.model);
    nll.insert(nll.end(), values.begin(), values.end());
  }
  EvaluateResult r;
  r.tokens = nll.size();
  r.perplexity = eval::perplexity(nll);
  return r;
}

EvaluateResult compare(Run& run, Scorer& reference, Scorer& model, const calib::Rows& rows,
                       const EvaluateOptions& options, Work& work) {
  const auto scored = score_batches(
      run, {&model, &reference}, rows, 4, work,
      [&](const std::vector<backend::Tensor>& h, const backend::Tensor& targets, const backend::Tensor& out) {
        const backend::Tensor q = model.logits(h[0]), p = reference.logits(h[1]);
        run.device->enqueue(backend::op::CompareLogits{p, q, targets, out});
      });
  eval::TokenComparison t;
  for (const Scored& s : scored) {
    const auto values = s.values.as<const float>();
    for (size_t i = 0; 4 * i < values.size(); ++i) {
      check_finite(values[4 * i + 1], s, i, rows.length, *options.reference);
      check_finite(values[4 * i + 2], s, i, rows.length, options.model);
      check_finite(values[4 * i], s, i, rows.length, options.model);
    }
    append_comparison(values, t);
  }
  return eval::summarize(t);
}

Work work_on(const model::ModelDir& dir) {
  const double head = layers_in_head(dir);
  return {0, static_cast<double>(dir.config().n_layers) + head, head};
}

Work sum(const Work& a, const Work& b) { return {0, a.total + b.total, a.heads + b.heads}; }

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
    if (!document.ids.empty()) {
      throw Error(ErrorCode::kModel,
                  fmt::format("{}, line {}: it holds rows of calibration; eval scores plain text",
                              options.text.string(), document.line),
                  "give a text that no calibration has seen");
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
  Work work = work_on(dir);
  if (reference) work = sum(work, work_on(*reference));
  Scorer model(run, dir, rows, "model", work);
  std::optional<Scorer> original;
  if (reference) original.emplace(run, *reference, rows, "reference", work);
  EvaluateResult r;
  const StageClock::Span span(run.clock, "evaluate: logits");
  if (reference) {
    r = compare(run, *original, model, rows, options, work);
    r.reference_bytes = reference->tensors().file_bytes();
    r.reference_bpw_linears = bpw_of_linears(*reference);
    r.reference_bpw_head = bpw_of_head(*reference);
  } else {
    r = score(run, model, rows, options, work);
  }
  work.done = work.total;
  tell(run, work);
  r.rows = rows.count();
  r.length = rows.length;
  r.bytes = dir.tensors().file_bytes();
  r.bpw_linears = bpw_of_linears(dir);
  r.bpw_head = bpw_of_head(dir);
  return r;
}

}  // namespace bw::pipeline
