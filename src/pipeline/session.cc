#include "pipeline/session.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "bitwright/error.h"
#include "calib/self_generate.h"
#include "codec/exl2.h"

namespace bw::pipeline {
namespace {

void check_finite(const Matrix<float>& w, const std::string& key) {
  const auto bad = std::find_if(w.span().begin(), w.span().end(), [](float x) { return !std::isfinite(x); });
  if (bad == w.span().end()) return;
  const auto at = static_cast<size_t>(bad - w.span().begin());
  throw Error(
      ErrorCode::kModel,
      fmt::format("{}.weight: row {}, column {} is {}, not a finite number", key, at / w.cols(), at % w.cols(), *bad),
      "the model is damaged; download it again");
}

}  // namespace

backend::Precision precision_of(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kF32:
      return backend::Precision::kF32;
    case Arithmetic::kBF16:
      return backend::Precision::kBF16;
    case Arithmetic::kAuto:
      break;
  }
  return backend::Precision::kAuto;
}

nn::Decoder::LinearLoader linear_loader(const model::ModelDir& dir, ThreadPool& pool) {
  return [&dir, &pool](const model::LinearInfo& info) {
    if (!codec::is_stored(dir.tensors(), info.key)) {
      Matrix<float> w = dir.load_linear(info);
      check_finite(w, info.key);
      return w;
    }
    const codec::Exl2Linear packed = codec::load(dir.tensors(), info.key, static_cast<uint32_t>(info.out));
    return quant::dequantize(pool, codec::unpack(pool, packed, info.key));
  };
}

Run::Run(const EngineOptions& options)
    : device(backend::make_cpu_backend(options.threads)),
      precision(precision_of(options.arithmetic)),
      reporter(options),
      clock(*device) {}

std::optional<tokenizer::ChatTemplate> load_chat_template(const std::filesystem::path& dir, Reporter& reporter) {
  try {
    return tokenizer::ChatTemplate::load(dir);
  } catch (const Error& e) {
    reporter.warn("tokenize", fmt::format("the chat template is not used: {}", e.what()));
    return std::nullopt;
  }
}

void warn_beyond_positions(Run& run, const model::ModelDir& dir, size_t length) {
  const size_t most = dir.config().max_position;
  if (most == 0 || length <= most) return;
  run.reporter.warn("plan", fmt::format("rows of {} tokens are longer than the {} positions of {}", length, most,
                                        dir.path().string()));
}

calib::Rows calibration_rows(Run& run, const model::ModelDir& dir, const CalibrationOptions& options) {
  const StageClock::Span span(run.clock, "calibration rows");
  warn_beyond_positions(run, dir, options.length);
  const auto tokenizer = tokenizer::Tokenizer::load(dir.path());
  const auto chat = load_chat_template(dir.path(), run.reporter);
  const tokenizer::ChatTemplate* chat_pointer = chat ? &*chat : nullptr;
  calib::Rows rows;
  if (options.files.empty()) {
    calib::check_self_generation({options.rows, options.length, options.seed});
    const nn::LanguageModel model(*run.device, dir, options.length, run.precision, linear_loader(dir, run.pool()));
    rows = calib::self_generate(
        model, tokenizer, chat_pointer, {options.rows, options.length, options.seed}, [&](size_t done, size_t total) {
          run.reporter.progress("self-calibration", static_cast<double>(done), static_cast<double>(total));
        });
  } else {
    rows = calib::rows_from_files(tokenizer, chat_pointer, options.files, options.rows, options.length);
  }
  calib::check_ids(rows, tokenizer, dir.vocab_rows());
  return rows;
}

States embed_rows(const nn::Decoder& decoder, const model::ModelDir& dir, const calib::Rows& rows) {
  States states;
  const size_t rows_per_batch = std::max<size_t>(1, kBatchTokens / rows.length);
  for (size_t first = 0; first < rows.count(); first += rows_per_batch) {
    const nn::RowBatch batch{std::min(rows_per_batch, rows.count() - first), rows.length};
    nn::Carry carry;
    carry.h = decoder.device().allocate(batch.tokens(), dir.config().hidden);
    decoder.embed(dir, std::span(rows.ids).subspan(first * rows.length, batch.tokens()), carry.h);
    states.batches.push_back(batch);
    states.carries.push_back(std::move(carry));
    states.tokens += batch.tokens();
  }
  return states;
}

}  // namespace bw::pipeline
