// Byte-pair encoding: merges the best-ranked pair of neighbours until none is left.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocab.h"
#include "tokenizer/word_cache.h"

namespace bw::tokenizer {

// Pairs of ids -> rank (lower first) and merged id.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    uint32_t id;
  };
  void reserve(size_t n);
  // A pair that is already there takes the new rank.
  void set(uint32_t left, uint32_t right, Merge merge);
  const Merge* find(uint32_t left, uint32_t right) const {
    const uint64_t key = uint64_t{left} << 32 | right;
    for (size_t slot = place(key);; slot = (slot + 1) & mask_) {
      if (entries_[slot].key == key) return &entries_[slot].merge;
      if (entries_[slot].key == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Entry {
    uint64_t key = kEmpty;
    Merge merge{};
  };
  size_t place(uint64_t key) const { return (key * 0x9E3779B97F4A7C15u >> 20) & mask_; }

  std::vector<Entry> entries_ = std::vector<Entry>(2);
  size_t mask_ = 1;
};

class Bpe {
 public:
  // `model`: the object "model" of the file.
  Bpe(const io::Json& model, const TokenizerFile& file, Vocab vocab);

  const Vocab& vocab() const { return vocab_; }
  // Appends the ids of one word (valid UTF-8).
  void encode(std::string_view word, WordCache& cache, std::vector<uint32_t>& out) const;

 private:
  void read_merges(const TokenizerFile& file);
  void find_joints(const TokenizerFile& file);
  static size_t joint(char32_t left, char32_t right);
  bool is_known(char32_t c) const { return known_[c / 64] >> c % 64 & 1; }
  bool may_cut(char32_t left, char32_t right) const;
  std::optional<uint32_t> symbol_of(std::string_view character, bool first, bool last) const;
  void encode_part(std::string_view part, WordCache& cache, std::vector<uint32_t>& out) const;
  void append_symbols(std::string_view part, std::vector<uint32_t>& symbols) const;
  void merge_short(std::vector<uint32_t>& symbols) const;
  void merge_long(std::vector<uint32_t>& symbols) const;

  Vocab vocab_;
  MergeTable merges_;
  std::string unk_token_, prefix_, suffix_;
  std::optional<uint32_t> unk_id_;
  bool has_unk_ = false, fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
  std::array<std::optional<uint32_t>, 256> byte_ids_;  // ids of <0x00> ... <0xFF>
  std::vector<std::optional<uint32_t>> low_ids_;       // ids of the characters below kLow; empty with prefix or suffix
  // Words are cut where no merge can reach across, and the parts encoded (and cached) alone: a whole text handed over
  // as one word falls into ordinary words. Such a place lies between two characters that have a token of their own and
  // that no merge joins: joints_ is a filter (bit = hash) of the pairs that are the last character of some merge's left
  // side and the first of its right side, known_ a bit set of the characters with a token. A character without one
  // vanishes or becomes bytes or unk_token, which may touch what is beyond it. Empty where words are not cut.
  std::vector<uint64_t> joints_, known_;
};

}  // namespace bw::tokenizer
