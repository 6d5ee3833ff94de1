// A bounded cache from words to their ids, for one thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/vocab.h"

namespace bw::tokenizer {

class WordCache {
 public:
  static constexpr size_t kMaxWord = 39;  // bytes; longer words are not kept
  static constexpr size_t kMaxIds = 9;

  // Appends the ids of `word` to `out` if they are known.
  bool find(std::string_view word, uint64_t hash, std::vector<uint32_t>& out) const {
    if (!entries_) return false;
    const Entry& e = entries_[hash % kEntries];
    if (e.n_ids == 0 || e.length != word.size() || std::memcmp(e.word, word.data(), word.size()) != 0) return false;
    out.insert(out.end(), e.ids, e.ids + e.n_ids);
    return true;
  }
  // Replaces whatever had the same place.
  void keep(std::string_view word, uint64_t hash, std::span<const uint32_t> ids) {
    if (word.size() > kMaxWord || ids.empty() || ids.size() > kMaxIds) return;
    if (!entries_) entries_ = std::make_unique<Entry[]>(kEntries);
    Entry& e = entries_[hash % kEntries];
    e.length = static_cast<uint8_t>(word.size());
    e.n_ids = static_cast<uint8_t>(ids.size());
    std::memcpy(e.word, word.data(), word.size());
    std::memcpy(e.ids, ids.data(), ids.size_bytes());
  }

  // A buffer for the symbols of one word, so that words do not allocate.
  std::vector<uint32_t>& scratch() { return scratch_; }

 private:
  static constexpr size_t kEntries = 1 << 15;
  struct Entry {
    uint32_t ids[kMaxIds];
    char word[kMaxWord + 3];
    uint8_t length;
    uint8_t n_ids;  // 0: empty
  };
  std::unique_ptr<Entry[]> entries_;  // made when first needed
  std::vector<uint32_t> scratch_;
};

}  // namespace bw::tokenizer
