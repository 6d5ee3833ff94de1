// The tokens of a model: text to id and id to text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bw::tokenizer {

// Ids above this are damage, not a vocabulary; it bounds what a small file can make us allocate.
inline constexpr uint32_t kMaxTokenId = (1u << 21) - 1;

uint64_t hash_text(std::string_view text);

class Vocab {
 public:
  // Throws Error(kModel) for an id that is too large or taken, and for a token that is already there.
  void add(std::string_view token, uint64_t id);

  std::optional<uint32_t> find(std::string_view token) const;
  // Nullopt for an id without a token. Valid until the next add().
  std::optional<std::string_view> text(uint32_t id) const;
  size_t n_tokens() const { return n_tokens_; }
  // Largest id + 1.
  size_t n_ids() const { return spans_.size(); }

 private:
  struct Span {
    uint64_t begin = 0;
    uint32_t length = kAbsent;
  };
  static constexpr uint32_t kAbsent = ~0u;
  std::string_view view(const Span& span) const { return {bytes_.data() + span.begin, span.length}; }
  void grow(size_t n_slots);

  std::string bytes_;
  std::vector<Span> spans_;      // by id
  std::vector<uint32_t> slots_;  // open addressing, a power of two; ids or kAbsent
  size_t n_tokens_ = 0;
};

}  // namespace bw::tokenizer
