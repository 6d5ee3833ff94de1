#include "pipeline/session.h"

#include <algorithm>

#include <fmt/format.h>

#include "backend/devices.h"
#include "bitwright/error.h"
#include "bitwright/units.h"
#include "calib/held_out.h"
#include "calib/self_generate.h"
#include "codec/exl2.h"
#include "io/file_write.h"
#include "model/finite.h"
#include "quant/held_out.h"

namespace bw::pipeline {
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

nn::Decoder::LinearLoader linear_loader(const model::ModelDir& dir, backend::Backend& device) {
  return [&dir, &device](const model::LinearInfo& info) {
    if (codec::is_stored(dir.tensors(), info.key)) {
      codec::Exl2Linear packed = codec::load(device, dir.tensors(), info.key, static_cast<uint32_t>(info.out));
      return quant::dequantize(device, codec::unpack(device, std::move(packed), info.key));
    }
    backend::HostTensor w = device.stage(info.out, info.in);
    dir.load_linear(info, w.as<float>());
    model::check_finite(w.as<float>(), info.in, 0, info.key + ".weight");
    return device.upload(std::move(w));
  };
}

Run::Run(const EngineOptions& options)
    : Run(options, backend::make_backend({options.device, options.threads, options.device_memory})) {}

Run::Run(const EngineOptions& options, std::unique_ptr<backend::Backend> made)
    : trace(options.trace.empty() ? nullptr : std::make_unique<backend::Trace>()),
      device(std::move(made)),
      precision(precision_of(options.arithmetic)),
      pool(options.threads),
      reporter(options),
      clock(*device) {
  device->trace_to(trace.get());
}

void write_trace(const Run& run, const EngineOptions& options) {
  if (run.trace) io::write_file(options.trace, run.trace->chrome_json());
}

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

calib::Mix calibration_mix(Run& run, const model::ModelDir& dir, const CalibrationOptions& options) {
  const StageClock::Span span(run.clock, "calibration rows");
  warn_beyond_positions(run, dir, options.length);
  const auto tokenizer = tokenizer::Tokenizer::load(dir.path());
  const auto chat = load_chat_template(dir.path(), run.reporter);
  const tokenizer::ChatTemplate* chat_pointer = chat ? &*chat : nullptr;
  calib::Mix mix;
  if (options.files.empty()) {
    calib::check_self_generation({options.rows, options.length, options.seed});
    const calib::HeldOutShape shape = calib::held_out_shape(options.rows, options.length);
    const nn::LanguageModel model(*run.device, dir, options.length, run.precision, linear_loader(dir, *run.device));
    calib::Rows rows =
        calib::self_generate(model, tokenizer, chat_pointer, {options.rows + shape.count, options.length, options.seed},
                             run.pool, [&](size_t done, size_t total) {
                               run.reporter.progress("self-calibration", static_cast<double>(done),
                                                     static_cast<double>(total), {}, "tokens");
                             });
    calib::Rows held_out = calib::split_off(rows, shape);
    mix = calib::mix_of(std::move(rows), std::move(held_out));
  } else {
    const std::vector<calib::Source> sources = calib::find_sources(options.files, options.weights);
    mix = calib::mix_sources(tokenizer, chat_pointer, sources, options.rows, options.length);
  }
  calib::check_ids(mix.rows, tokenizer, dir.vocab_rows());
  calib::check_ids(mix.held_out, tokenizer, dir.vocab_rows());
  return mix;
}

calib::Rows calibration_rows(Run& run, const model::ModelDir& dir, const CalibrationOptions& options) {
  return calibration_mix(run, dir, options).rows;
}

uint64_t weights_of_layers(const model::ModelConfig& c) {
  const uint64_t attention = uint64_t{c.hidden} * (2 * c.n_heads + 2 * c.n_kv_heads) * c.head_dim;
  return c.n_layers * (attention + uint64_t{3} * c.hidden * c.intermediate);
}

double layers_in_head(const model::ModelDir& dir) {
  const model::ModelConfig& c = dir.config();
  const double layer = static_cast<double>(weights_of_layers(c)) / static_cast<double>(c.n_layers);
  return static_cast<double>(dir.vocab_rows()) * static_cast<double>(c.hidden) / layer;
}

uint64_t device_bytes_needed(const model::ModelConfig& c, size_t tokens) {
  const uint64_t widest = std::max({c.hidden, c.intermediate, c.n_heads * c.head_dim});
  const uint64_t states = tokens * (c.hidden + widest);
  // The layer's weights as floats and packed, the next one's as floats; the widest Hessian with its factor; what passes
  // through the layer for one batch; tokens that are held out and as many others, at each site.
  const uint64_t layer = 3 * weights_of_layers(c) / c.n_layers + 4 * widest * widest + 4 * kBatchTokens * widest +
                         2 * nn::kSites * std::min<uint64_t>(tokens / quant::kHeldOutShare, kHeldOutTokens) * widest;
  return sizeof(float) * (states + layer);
}

States embed_rows(Run& run, const nn::Decoder& decoder, const model::ModelDir& dir, const calib::Rows& rows,
                  const std::filesystem::path& scratch, size_t copies) {
  const StageClock::Span span(run.clock, "embed");
  const model::ModelConfig& config = dir.config();
  const uint64_t limit = run.device->memory_limit(), needed = device_bytes_needed(config, copies * rows.ids.size());
  StatesPlace place{limit == 0 || needed <= limit, {}};
  if (run.states_on_disk && !scratch.empty()) place = {false, scratch};
  if (!place.on_device && place.scratch.empty()) {
    run.reporter.note("embed",
                      fmt::format("the states of all rows stay on the host: {} of device memory would be needed, "
                                  "{} may be used",
                                  format_bytes(needed), format_bytes(limit)));
  }
  States states(*run.device, std::move(place));
  const size_t rows_per_batch = std::max<size_t>(1, kBatchTokens / rows.length);
  for (size_t first = 0; first < rows.count(); first += rows_per_batch) {
    const nn::RowBatch batch{std::min(rows_per_batch, rows.count() - first), rows.length};
    states.add(batch, decoder.embed(dir, std::span(rows.ids).subspan(first * rows.length, batch.tokens())));
  }
  return states;
}

}  // namespace bw::pipeline
