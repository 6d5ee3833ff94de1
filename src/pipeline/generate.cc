#include "pipeline/generate.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/rng.h"
#include "bitwright/error.h"
#include "nn/language_model.h"

namespace bw::pipeline {
namespace {

std::vector<uint32_t> prompt_ids(Run& run, const tokenizer::Tokenizer& tokenizer, const GenerateOptions& options) {
  std::vector<uint32_t> ids;
  if (options.chat) {
    const auto chat = load_chat_template(options.model, run.reporter);
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

// Bytes of `text` that end with a whole UTF-8 character.
size_t whole_characters(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    if ((c & 0xC0) == 0x80) continue;
    const size_t length = c < 0x80 ? 1 : c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

// Hands out the decoded text as it grows, never a part of a character.
class TextStream {
 public:
  TextStream(const tokenizer::Tokenizer& tokenizer, const std::function<void(std::string_view)>& sink)
      : tokenizer_(tokenizer), sink_(sink) {}

  // `ids`: all generated ids so far. `last`: hand out everything.
  void update(const std::vector<uint32_t>& ids, bool last) {
    text_ = tokenizer_.decode(ids);
    size_t end = last ? text_.size() : whole_characters(text_);
    // A byte that is still without its followers is decoded as U+FFFD: wait for them.
    constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
    while (!last && end >= kReplacement.size() && std::string_view(text_).substr(0, end).ends_with(kReplacement))
      end -= kReplacement.size();
    if (end > sent_) {
      if (sink_) sink_(std::string_view(text_).substr(sent_, end - sent_));
      sent_ = end;
    }
  }
  const std::string& text() const { return text_; }

 private:
  const tokenizer::Tokenizer& tokenizer_;
  const std::function<void(std::string_view)>& sink_;
  std::string text_;
  size_t sent_ = 0;
};

std::vector<uint32_t> stop_ids(const model::ModelDir& dir) {
  std::vector<uint32_t> ids = dir.config().eos;
  const auto path = dir.path() / "generation_config.json";
  if (!std::filesystem::exists(path)) return ids;
  try {
    const io::Json config = io::load_json(path);
    if (!config.is_object() || !config.contains("eos_token_id")) return ids;
    const io::Json& eos = config["eos_token_id"];
    for (const io::Json& id : eos.is_array() ? eos : io::Json::array({eos})) {
      if (id.is_number_unsigned()) ids.push_back(id.get<uint32_t>());
    }
  } catch (const Error&) {
    // The file is optional, and damaged ones are common; config.json has told us the essential.
  }
  return ids;
}

}  // namespace

GenerateResult generate_text(Run& run, const GenerateOptions& options) {
  const model::ModelDir dir(options.model, true);
  const auto tokenizer = tokenizer::Tokenizer::load(dir.path());
  const std::vector<uint32_t> prompt = prompt_ids(run, tokenizer, options);
  for (const uint32_t id : prompt) {
    if (id >= dir.vocab_rows()) {
      throw Error(ErrorCode::kModel,
                  fmt::format("the tokenizer gives id {}, but the model has {} embedding rows", id, dir.vocab_rows()));
    }
  }
  const size_t capacity = prompt.size() + options.max_tokens;
  const nn::LanguageModel model(*run.device, dir, capacity, run.precision, linear_loader(dir, run.pool()));
  nn::KvCache cache(*run.device, dir.config(), 1, capacity);
  const std::vector<uint32_t> stops = stop_ids(dir);
  Rng rng(options.seed);
  TextStream stream(tokenizer, options.on_text);
  GenerateResult result;
  result.prompt_tokens = prompt.size();
  std::vector<uint32_t> ids, next = prompt;
  std::vector<float> logits(dir.vocab_rows());
  while (ids.size() < options.max_tokens) {
    const backend::Tensor out = model.step(next, next.size(), cache);
    run.device->read(out, logits, "sampling");
    const uint32_t id = nn::sample(logits, {options.temperature, options.top_p, options.top_k}, rng.next_double());
    if (std::find(stops.begin(), stops.end(), id) != stops.end()) {
      result.stopped = true;
      break;
    }
    ids.push_back(id);
    next = {id};
    stream.update(ids, false);
  }
  stream.update(ids, true);
  result.text = stream.text();
  result.tokens = ids.size();
  return result;
}

}  // namespace bw::pipeline
