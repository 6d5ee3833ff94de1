#include "pipeline/generate.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/rng.h"
#include "bitwright/error.h"
#include "nn/language_model.h"
#include "tokenizer/text_stream.h"

namespace bw::pipeline {
namespace {

constexpr size_t kMostTokens = size_t{1} << 20;

std::vector<uint32_t> prompt_ids(const tokenizer::Tokenizer& tokenizer, const GenerateOptions& options) {
  std::vector<uint32_t> ids;
  if (options.chat) {
    const auto chat = tokenizer::ChatTemplate::load(options.model);
    if (!chat) {
      throw Error(ErrorCode::kModel, fmt::format("{}: the model has no chat template", options.model.string()),
                  "leave --chat out");
    }
    io::OrderedJson messages = io::OrderedJson::array();
    messages.push_back({{"role", "user"}, {"content", options.prompt}});
    ids = tokenizer.encode(chat->render(messages, true));
  } else {
    ids = tokenizer.encode(options.prompt, {.add_special_tokens = false, .parse_special_tokens = true});
    ids.insert(ids.begin(), tokenizer.prefix_ids().begin(), tokenizer.prefix_ids().end());
  }
  if (ids.empty()) {
    throw Error(ErrorCode::kUsage, "the prompt is empty, and this model's tokenizer adds no token of its own",
                "give --prompt some text");
  }
  return ids;
}

void check_options(const GenerateOptions& o) {
  if (o.max_tokens > kMostTokens) {
    throw Error(ErrorCode::kUsage, fmt::format("--max-tokens {}: at most {} are possible", o.max_tokens, kMostTokens));
  }
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature)) {
    throw Error(ErrorCode::kUsage, fmt::format("--temperature {}: it must be 0 or more", o.temperature));
  }
  if (!(o.top_p > 0 && o.top_p <= 1)) {
    throw Error(ErrorCode::kUsage, fmt::format("--top-p {}: it must be above 0 and at most 1", o.top_p));
  }
}

std::vector<uint32_t> stop_ids(const model::ModelDir& dir) {
  std::vector<uint32_t> ids = dir.config().eos;
  const auto path = dir.path() / "generation_config.json";
  if (!std::filesystem::exists(path)) return ids;
  try {
    const io::Json config = io::load_json(path);
    if (!config.is_object() || !config.contains("eos_token_id")) return ids;
    const io::Json& eos = config["eos_token_id"];
    for (const io::Json& id : eos.is_array() ? eos : io::Json::array({eos})) {
      if (id.is_number_unsigned() && id.get<uint64_t>() <= UINT32_MAX) ids.push_back(id.get<uint32_t>());
    }
  } catch (const Error&) {
    // The file is optional, and damaged ones are common; config.json has told us the essential.
  }
  return ids;
}

}  // namespace

GenerateResult generate_text(Run& run, const GenerateOptions& options) {
  check_options(options);
  const model::ModelDir dir(options.model, true);
  const auto tokenizer = tokenizer::Tokenizer::load(dir.path());
  const std::vector<uint32_t> prompt = prompt_ids(tokenizer, options);
  for (const uint32_t id : prompt) {
    if (id >= dir.vocab_rows()) {
      throw Error(ErrorCode::kModel,
                  fmt::format("the tokenizer gives id {}, but the model has {} embedding rows", id, dir.vocab_rows()));
    }
  }
  warn_beyond_positions(run, dir, prompt.size() + options.max_tokens);
  const nn::LanguageModel model = [&] {
    const StageClock::Span span(run.clock, "generate: load");
    return nn::LanguageModel(*run.device, dir, prompt.size() + options.max_tokens, run.precision,
                             linear_loader(dir, *run.device));
  }();
  const StageClock::Span span(run.clock, "generate: write");
  nn::KvCache cache(*run.device, dir.config(), 1, prompt.size());
  const std::vector<uint32_t> stops = stop_ids(dir);
  Rng rng(options.seed);
  tokenizer::TextStream stream(tokenizer);
  GenerateResult result;
  const auto hand_out = [&](const std::string& piece) {
    result.text += piece;
    if (options.on_text && !piece.empty()) options.on_text(piece);
  };
  result.prompt_tokens = prompt.size();
  std::vector<uint32_t> next = prompt;
  for (; result.tokens < options.max_tokens; ++result.tokens) {
    run.reporter.check_interrupted();
    nn::make_room(*run.device, dir.config(), cache.length + next.size(), cache);
    const backend::Tensor out = model.step(next, next.size(), cache);
    const std::vector<float> logits = run.device->read<float>(out, "sampling");
    const uint32_t id = nn::sample(logits, {options.temperature, options.top_p, options.top_k}, rng.next_double());
    if (std::find(stops.begin(), stops.end(), id) != stops.end()) {
      result.stopped = true;
      break;
    }
    next = {id};
    hand_out(stream.push(id));
  }
  hand_out(stream.finish());
  return result;
}

}  // namespace bw::pipeline
