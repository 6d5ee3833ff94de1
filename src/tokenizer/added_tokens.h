// Added tokens: found in the text as they stand, before (or, if "normalized", after) the normalizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/json.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/vocab.h"

namespace bw::tokenizer {

class AddedTokens {
 public:
  AddedTokens() = default;
  // `list`: the array "added_tokens". A token of the model keeps the id it has there; others are numbered from the end
  // of the vocabulary in the order of the file, as the `tokenizers` library does.
  AddedTokens(const io::Json& list, const Vocab& vocab, const std::vector<NormalizerStep>& normalizer);

  struct Section {
    std::string_view text;       // empty for a token
    std::optional<uint32_t> id;  // an added token
  };
  enum class Stage { kRaw, kNormalized };
  // Cuts `text` at the tokens of a stage: leftmost first, the longest of those that begin there. Without `special`,
  // special tokens are text.
  void split(Stage stage, std::string_view text, bool special, std::vector<Section>& sections) const;

  std::optional<uint32_t> find(const std::string& token) const;
  // Null if it is no added token.
  const std::string* text(uint32_t id) const;
  // The same as decoding writes it: after the normalizer, if the token is found there. Null if it is no added token.
  const std::string* decoded(uint32_t id) const;
  bool is_special(uint32_t id) const;
  // Largest id + 1; 0 without added tokens.
  size_t n_ids() const { return n_ids_; }

 private:
  struct Token {
    std::string content;
    std::string decoded;
    bool single_word, lstrip, rstrip, normalized, special;
  };
  static Token parse(const io::Json& item, size_t index);
  void add(Token token, const Vocab& vocab);
  void build_tries(const std::vector<NormalizerStep>& normalizer);

  std::unordered_map<std::string, uint32_t> ids_;
  std::unordered_map<uint32_t, Token> tokens_;
  std::optional<uint32_t> largest_;
  size_t n_ids_ = 0;
  ByteTrie raw_, normalized_;
};

}  // namespace bw::tokenizer
