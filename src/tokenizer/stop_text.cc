#include "tokenizer/stop_text.h"

#include <algorithm>
#include <utility>

namespace bw::tokenizer {
namespace {

// Bytes at the end of `text` that may become `stop`.
size_t open_bytes(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.ends_with(stop.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

StopText::StopText(std::vector<std::string> texts) : texts_(std::move(texts)) {
  std::erase_if(texts_, [](const std::string& text) { return text.empty(); });
}

std::string StopText::push(std::string_view piece) {
  if (stopped_) return {};
  waiting_ += piece;
  size_t end = std::string::npos, open = 0;
  for (const std::string& stop : texts_) {
    end = std::min(end, waiting_.find(stop));
    open = std::max(open, open_bytes(waiting_, stop));
  }
  stopped_ = end != std::string::npos;
  if (!stopped_) end = waiting_.size() - open;
  std::string out = waiting_.substr(0, end);
  waiting_.erase(0, stopped_ ? waiting_.size() : end);
  return out;
}

std::string StopText::finish() { return std::exchange(waiting_, {}); }

}  // namespace bw::tokenizer
