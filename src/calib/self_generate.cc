#include "calib/self_generate.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/rng.h"
#include "bitwright/error.h"

namespace bw::calib {
namespace {

// Short texts: many subjects tell more than long ones (docs/quality.md).
constexpr size_t kTextTokens = 128;
constexpr size_t kChatShare = 8;  // one text in so many opens a user's turn
constexpr uint64_t kMostTokens = uint64_t{1} << 32;
constexpr uint64_t kSampleStream = 1, kStartStream = 2;

// The ids a text begins with: what opens every text (BOS), then any ordinary token, so that no two are alike.
std::vector<uint32_t> text_start(size_t text, const tokenizer::Tokenizer& tokenizer,
                                 const std::vector<uint32_t>& chat_start, size_t vocab_rows, Rng& rng) {
  if (text % kChatShare == kChatShare - 1 && !chat_start.empty()) return chat_start;
  std::vector<uint32_t> start = tokenizer.prefix_ids();
  for (int attempt = 0; attempt < 64; ++attempt) {
    const uint32_t id = rng.below(static_cast<uint32_t>(vocab_rows));
    if (!tokenizer.id_to_token(id) || tokenizer.is_special(id)) continue;
    start.push_back(id);
    return start;
  }
  if (start.empty()) start.push_back(0);
  return start;
}

// Texts being written together. All are fed position by position, so that texts whose openings differ in length share a
// batch.
class Writer {
 public:
  Writer(const nn::LanguageModel& model, std::vector<std::vector<uint32_t>> starts, size_t length, uint64_t seed,
         ThreadPool& pool)
      : model_(model), pool_(pool), starts_(std::move(starts)), length_(length), ids_(starts_.size() * length) {
    for (size_t s = 0; s < starts_.size(); ++s) {
      if (starts_[s].size() > length) starts_[s].resize(length);
      rngs_.emplace_back(seed, kSampleStream + (static_cast<uint64_t>(s) << 8));
    }
  }

  std::vector<uint32_t> write(const std::function<void(size_t, size_t)>& progress) {
    backend::Backend& device = model_.decoder().device();
    const size_t sequences = starts_.size();
    nn::KvCache cache(device, model_.dir().config(), sequences, length_);
    std::vector<uint32_t> column(sequences);
    for (size_t at = 0; at < length_; ++at) {
      for (size_t s = 0; s < sequences; ++s) {
        if (at < starts_[s].size()) ids_[s * length_ + at] = starts_[s][at];
        column[s] = ids_[s * length_ + at];
      }
      if (progress) progress((at + 1) * sequences, length_ * sequences);
      if (at + 1 == length_) break;
      const backend::Tensor out = model_.step(column, 1, cache);
      const backend::HostTensor logits = device.download(out);
      device.wait(logits, "sampling");
      draw(at + 1, logits.view<const float>());
    }
    return std::move(ids_);
  }

 private:
  void draw(size_t at, MatrixView<const float> logits) {
    pool_.parallel_for(starts_.size(), [&](size_t s, size_t) {
      const nn::Sampling sampling{.temperature = 1, .top_p = 1, .top_k = 0};
      ids_[s * length_ + at] = nn::sample(logits.row_span(s), sampling, rngs_[s].next_double());
    });
  }

  const nn::LanguageModel& model_;
  ThreadPool& pool_;
  std::vector<std::vector<uint32_t>> starts_;
  size_t length_;
  std::vector<uint32_t> ids_;
  std::vector<Rng> rngs_;
};

}  // namespace

std::string user_turn_opening(const tokenizer::ChatTemplate& chat) {
  // A word that no template writes by itself marks the place of the user's words.
  const std::string mark = "\u2042bitwright\u2042";
  io::OrderedJson messages = io::OrderedJson::array();
  messages.push_back({{"role", "user"}, {"content", mark}});
  try {
    const std::string text = chat.render(messages, false);
    const size_t at = text.find(mark);
    return at == std::string::npos ? std::string() : text.substr(0, at);
  } catch (const Error&) {
    return {};  // a template that refuses such a conversation: plain text serves
  }
}

void check_self_generation(const SelfGenerateOptions& options) {
  if (options.rows == 0 || options.length < 2) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} calibration rows of {} tokens make no sense: at least 1 row of 2 tokens is needed",
                            options.rows, options.length));
  }
  if (options.rows > kMostTokens / options.length) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} calibration rows of {} tokens are too many: at most {} tokens can be written",
                            options.rows, options.length, kMostTokens),
                "ask for fewer or shorter rows");
  }
}

Rows self_generate(const nn::LanguageModel& model, const tokenizer::Tokenizer& tokenizer,
                   const tokenizer::ChatTemplate* chat, const SelfGenerateOptions& options, ThreadPool& pool,
                   const std::function<void(size_t, size_t)>& progress) {
  check_self_generation(options);
  const size_t vocab_rows = model.dir().vocab_rows();
  const size_t text_length = std::min(kTextTokens, options.length);
  const size_t texts_per_row = (options.length + text_length - 1) / text_length;
  std::vector<uint32_t> chat_start;
  if (chat != nullptr) chat_start = tokenizer.encode(user_turn_opening(*chat));
  Rng rng(options.seed, kStartStream);
  std::vector<std::vector<uint32_t>> starts;
  for (size_t text = 0; text < options.rows * texts_per_row; ++text) {
    starts.push_back(text_start(text, tokenizer, chat_start, vocab_rows, rng));
  }
  Rows rows;
  rows.length = options.length;
  rows.source = "self-generated";
  const std::vector<uint32_t> ids = Writer(model, std::move(starts), text_length, options.seed, pool).write(progress);
  const size_t stride = texts_per_row * text_length;
  for (size_t row = 0; row < options.rows; ++row) {
    const auto first = ids.begin() + static_cast<std::ptrdiff_t>(row * stride);
    rows.ids.insert(rows.ids.end(), first, first + static_cast<std::ptrdiff_t>(options.length));
  }
  return rows;
}

}  // namespace bw::calib
