#include "tokenizer/vocab.h"

#include <xxhash.h>

#include "bitwright/error.h"
#include "tokenizer/tokenizer_json.h"

namespace bw::tokenizer {

uint64_t hash_text(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

void Vocab::grow(size_t n_slots) {
  slots_.assign(n_slots, kAbsent);
  for (uint32_t id = 0; id < spans_.size(); ++id) {
    if (spans_[id].length == kAbsent) continue;
    size_t slot = hash_text(view(spans_[id])) & (n_slots - 1);
    while (slots_[slot] != kAbsent) slot = (slot + 1) & (n_slots - 1);
    slots_[slot] = id;
  }
}

void Vocab::add(std::string_view token, uint64_t id) {
  if (id > kMaxTokenId) {
    bad_tokenizer("token " + shown(token) + " has id " + std::to_string(id) + ", at most " +
                  std::to_string(kMaxTokenId) + " is supported");
  }
  if (2 * (n_tokens_ + 1) > slots_.size()) grow(slots_.empty() ? 64 : 2 * slots_.size());
  size_t slot = hash_text(token) & (slots_.size() - 1);
  for (; slots_[slot] != kAbsent; slot = (slot + 1) & (slots_.size() - 1)) {
    if (view(spans_[slots_[slot]]) == token) bad_tokenizer("token " + shown(token) + " stands twice in the vocabulary");
  }
  if (id >= spans_.size()) spans_.resize(id + 1);
  if (spans_[id].length != kAbsent) {
    bad_tokenizer("tokens " + shown(view(spans_[id])) + " and " + shown(token) + " both have id " + std::to_string(id));
  }
  spans_[id] = {bytes_.size(), static_cast<uint32_t>(token.size())};
  bytes_.append(token);
  slots_[slot] = static_cast<uint32_t>(id);
  ++n_tokens_;
}

std::optional<uint32_t> Vocab::find(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  for (size_t slot = hash_text(token) & (slots_.size() - 1); slots_[slot] != kAbsent;
       slot = (slot + 1) & (slots_.size() - 1)) {
    if (view(spans_[slots_[slot]]) == token) return slots_[slot];
  }
  return std::nullopt;
}

std::optional<std::string_view> Vocab::text(uint32_t id) const {
  if (id >= spans_.size() || spans_[id].length == kAbsent) return std::nullopt;
  return view(spans_[id]);
}

}  // namespace bw::tokenizer
