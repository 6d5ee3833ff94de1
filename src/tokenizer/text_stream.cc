#include "tokenizer/text_stream.h"

#include <algorithm>
#include <optional>

namespace bw::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// True for a token like <0x0A>: what a run of them means is known at its end.
bool stands_for_a_byte(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.back() == '>';
}

}  // namespace

std::string TextStream::push(uint32_t id) {
  const std::optional<std::string> token = tokenizer_.id_to_token(id);
  if (!token || tokenizer_.is_special(id)) return {};  // decode leaves it out
  window_.push_back(id);
  if (stands_for_a_byte(*token)) return {};
  const std::string text = tokenizer_.decode(window_);
  size_t end = text.size();
  // Bytes that are still without their followers are decoded as one U+FFFD.
  const bool open = text.ends_with(kReplacement);
  if (open) end -= kReplacement.size();
  if (end <= sent_) return {};
  std::string piece = text.substr(sent_, end - sent_);
  sent_ = end;
  if (!open) {
    window_.erase(window_.begin(), window_.begin() + static_cast<ptrdiff_t>(context_));
    context_ = window_.size();
    sent_ = tokenizer_.decode(window_).size();
  }
  return piece;
}

std::string TextStream::finish() {
  const std::string text = tokenizer_.decode(window_);
  std::string piece = text.substr(std::min(sent_, text.size()));
  sent_ = text.size();
  return piece;
}

}  // namespace bw::tokenizer
