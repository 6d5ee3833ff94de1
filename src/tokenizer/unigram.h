// Unigram model: the segmentation of a word with the highest sum of token scores.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/vocab.h"
#include "tokenizer/word_cache.h"

namespace bw::tokenizer {

class Unigram {
 public:
  // `model`: the object "model" of the file.
  Unigram(const io::Json& model, const TokenizerFile& file);

  const Vocab& vocab() const { return vocab_; }
  // Appends the ids of one word (valid UTF-8). Throws Error(kModel) for an unknown character if there is no unk_id.
  void encode(std::string_view word, WordCache& cache, std::vector<uint32_t>& out) const;

 private:
  void append_best(std::string_view word, std::vector<uint32_t>& out) const;
  void append_token(std::string_view token, std::vector<uint32_t>& out) const;
  [[noreturn]] static void no_unk();

  Vocab vocab_;
  ByteTrie trie_;
  std::vector<double> scores_;  // by id
  double unk_score_ = 0;
  std::optional<uint32_t> unk_id_;
  bool byte_fallback_ = false;
  bool fuse_unk_ = true;
  std::array<std::optional<uint32_t>, 256> byte_ids_;  // ids of <0x00> ... <0xFF>
};

}  // namespace bw::tokenizer
