#include "pipeline/writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "bitwright/error.h"

namespace bw::pipeline {
namespace {

constexpr size_t kMostTokens = size_t{1} << 20;
constexpr size_t kFirstRoom = 256;  // positions of a cache, which grows

[[noreturn]] void refuse(const char* option, double value, const char* expected) {
  throw Error(ErrorCode::kUsage, fmt::format("{} {}: it must be {}", option, value, expected));
}

}  // namespace

void check_writing(const WritingOptions& o) {
  if (o.max_tokens > kMostTokens) {
    throw Error(ErrorCode::kUsage, fmt::format("--max-tokens {}: at most {} are possible", o.max_tokens, kMostTokens));
  }
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature)) refuse("--temperature", o.temperature, "0 or more");
  if (!(o.top_p > 0 && o.top_p <= 1)) refuse("--top-p", o.top_p, "above 0 and at most 1");
  if (!(o.min_p >= 0 && o.min_p <= 1)) refuse("--min-p", o.min_p, "from 0 to 1");
}

void check_ids(std::span<const uint32_t> ids, const model::ModelDir& dir) {
  for (const uint32_t id : ids) {
    if (id < dir.vocab_rows()) continue;
    throw Error(ErrorCode::kModel, fmt::format("the tokenizer gives id {}, but the model {} has {} embedding rows", id,
                                               dir.path().string(), dir.vocab_rows()));
  }
}

std::vector<uint32_t> end_ids(const model::ModelDir& dir) {
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

Writer::Writer(Run& run, const model::ModelDir& dir, size_t length)
    : run_(run),
      dir_(dir),
      length_(length),
      model_([&] {
        const StageClock::Span span(run.clock, "generate: load");
        return nn::LanguageModel(*run.device, dir, length, run.precision, linear_loader(dir, *run.device));
      }()),
      cache_(*run.device, dir.config(), 1, std::min(length, kFirstRoom)) {}

size_t Writer::known(std::span<const uint32_t> ids) const {
  // The last one is computed in any case: its logits are not kept.
  const size_t most = std::min(ids.size() - 1, ids_.size());
  return static_cast<size_t>(
      std::mismatch(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(most), ids_.begin()).first - ids.begin());
}

std::vector<float> Writer::logits_after(std::span<const uint32_t> ids) {
  BW_CHECK(!ids.empty() && ids.size() <= length_);
  const StageClock::Span span(run_.clock, "generate: write");
  cache_.length = known(ids);
  ids_.resize(cache_.length);  // what fails now leaves no id that the cache does not hold
  nn::make_room(*run_.device, dir_.config(), ids.size(), cache_);
  const std::span<const uint32_t> next = ids.subspan(cache_.length);
  const backend::Tensor out = model_.step(next, next.size(), cache_);
  ids_.assign(ids.begin(), ids.end());
  return run_.device->read<float>(out, "sampling");
}

Continuation::Continuation(Writer& writer, const tokenizer::Tokenizer& tokenizer, const WritingOptions& options,
                           std::vector<uint32_t> ids, std::function<void(std::string_view)> hand_out)
    : writer_(writer),
      options_(options),
      ids_(std::move(ids)),
      ends_(end_ids(writer.dir())),
      stream_(tokenizer),
      stop_(options.stop),
      hand_out_(std::move(hand_out)) {
  end_if_full();
}

uint32_t Continuation::draw(std::span<const float> logits, double u) const {
  return nn::sample(logits, {options_.temperature, options_.top_p, options_.top_k, options_.min_p}, u);
}

void Continuation::add(uint32_t id) {
  BW_CHECK(!done());
  if (std::find(ends_.begin(), ends_.end(), id) != ends_.end()) return end(Ending::kEndToken);
  ids_.push_back(id);
  ++tokens_;
  hand_out(stop_.push(stream_.push(id)));
  if (stop_.stopped()) return end(Ending::kStopText);
  end_if_full();
}

void Continuation::end_if_full() {
  if (tokens_ >= options_.max_tokens) return end(Ending::kMaxTokens);
  if (ids_.size() >= writer_.length()) end(Ending::kContext);
}

void Continuation::end(Ending ending) {
  ending_ = ending;
  hand_out(stop_.push(stream_.finish()));
  if (stop_.stopped()) ending_ = Ending::kStopText;
  hand_out(stop_.finish());
}

void Continuation::hand_out(const std::string& piece) {
  if (piece.empty()) return;
  text_ += piece;
  if (hand_out_) hand_out_(piece);
}

}  // namespace bw::pipeline
