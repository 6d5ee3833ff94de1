// tokenizer.json of the Hugging Face `tokenizers` library: text to token ids and back, with the same ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bw::tokenizer {

// Supported: models BPE and Unigram; normalizers Sequence, NFC, NFD, NFKC, NFKD, Replace, Prepend, Strip, Lowercase,
// StripAccents, ByteLevel; pre-tokenizers Sequence, ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit,
// Punctuation; post-processors Sequence, TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing; decoders
// Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, BPEDecoder. Truncation and padding are ignored.
// Immutable after construction; encode and decode may be called from several threads.
class Tokenizer {
 public:
  // Throws Error(kModel) beginning with `name` for damaged JSON and for a normalizer, pre-tokenizer, model,
  // post-processor or decoder that is not known (by its name).
  static Tokenizer from_json(std::string_view json, std::string_view name);
  // DIR/tokenizer.json; if there is only tokenizer.model, the error says how to convert it.
  static Tokenizer load(const std::filesystem::path& model_dir);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  struct EncodeOptions {
    bool add_special_tokens = false;   // what the post-processor adds (BOS ...)
    bool parse_special_tokens = true;  // added tokens in the text become one id; false: only non-special ones do
  };
  // Invalid UTF-8 is replaced by U+FFFD, as a lenient reader does.
  std::vector<uint32_t> encode(std::string_view text, EncodeOptions options) const;
  std::vector<uint32_t> encode(std::string_view text) const { return encode(text, EncodeOptions{}); }

  std::string decode(std::span<const uint32_t> ids, bool skip_special_tokens = true) const;

  // Ids that the post-processor puts in front of a text; empty if it adds none.
  const std::vector<uint32_t>& prefix_ids() const;
  // Largest id + 1 over vocabulary and added tokens.
  size_t vocab_size() const;
  std::optional<uint32_t> token_to_id(std::string_view token) const;
  // Nullopt for ids without a token. The token as stored (byte-level spelling, not decoded).
  std::optional<std::string> id_to_token(uint32_t id) const;
  bool is_special(uint32_t id) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace bw::tokenizer
