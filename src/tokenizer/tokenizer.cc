#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <variant>

#include "bitwright/error.h"
#include "io/file_map.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"
#include "tokenizer/word_cache.h"

namespace bw::tokenizer {
namespace {

using Model = std::variant<Bpe, Unigram>;

const io::Json& section(const io::Json& json, const char* key) {
  static const io::Json null;
  const auto it = json.find(key);
  return it == json.end() ? null : *it;
}

Model parse_model(TokenizerFile& file) {
  const io::Json& model = section(file.json, "model");
  if (!model.is_object()) bad_tokenizer("\"model\" is missing");
  // Files from before the models had names hold BPE if they hold merges.
  const std::string type = string_field(model, "type", file.merges.empty() ? "" : "BPE", "model");
  if (type == "BPE") {
    if (!file.pieces.empty()) bad_tokenizer("model: the vocabulary of BPE must be an object");
    return Bpe(model, file, std::move(file.vocab));
  }
  if (type == "Unigram") return Unigram(model, file);
  bad_tokenizer("model " + shown(type) + " is not supported", "supported are BPE and Unigram");
}

}  // namespace

struct Tokenizer::Impl {
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  Model model;
  AddedTokens added;
  PostProcessor post_processor;
  Decoder decoder;
  const Vocab* vocab;  // of the model

  // Caches of words, one for each call that is running; kept for later calls. They change speed only, never results.
  std::mutex caches_mutex;
  std::vector<std::unique_ptr<WordCache>> caches;

  explicit Impl(TokenizerFile file)
      : normalizer(parse_normalizer(section(file.json, "normalizer"))),
        pre_tokenizer(parse_pre_tokenizer(section(file.json, "pre_tokenizer"))),
        model(parse_model(file)),
        post_processor(parse_post_processor(section(file.json, "post_processor"))),
        decoder(parse_decoder(section(file.json, "decoder"))),
        vocab(std::visit([](const auto& m) { return &m.vocab(); }, model)) {
    added = AddedTokens(array_field(file.json, "added_tokens", "tokenizer"), *vocab, normalizer);
  }

  std::unique_ptr<WordCache> take_cache() {
    const std::scoped_lock lock(caches_mutex);
    if (caches.empty()) return std::make_unique<WordCache>();
    auto cache = std::move(caches.back());
    caches.pop_back();
    return cache;
  }
  void give_back(std::unique_ptr<WordCache> cache) {
    const std::scoped_lock lock(caches_mutex);
    caches.push_back(std::move(cache));
  }

  void encode_words(std::string_view text, bool at_start, WordCache& cache, std::vector<uint32_t>& out) const {
    if (text.empty()) return;
    Words words{std::string(text), {text.size()}, at_start};
    pre_tokenize(pre_tokenizer, words);
    const std::string_view all = words.text;
    size_t begin = 0;
    std::visit(
        [&](const auto& m) {
          for (const size_t end : words.ends) {
            m.encode(all.substr(begin, end - begin), cache, out);
            begin = end;
          }
        },
        model);
  }

  // A part of the input without raw added tokens.
  void encode_section(std::string_view text, bool at_start, bool special, WordCache& cache,
                      std::vector<uint32_t>& out) const {
    const std::string normalized = normalize(normalizer, std::string(text), at_start);
    std::vector<AddedTokens::Section> sections;
    added.split(AddedTokens::Stage::kNormalized, normalized, special, sections);
    for (const auto& part : sections) {
      if (part.id) {
        out.push_back(*part.id);
      } else {
        encode_words(part.text, at_start && part.text.data() == normalized.data(), cache, out);
      }
    }
  }
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view name) {
  try {
    return Tokenizer(std::make_unique<Impl>(parse_tokenizer_file(json)));
  } catch (const Error& error) {
    std::string what = error.what();
    if (!error.hint().empty()) what.resize(what.size() - error.hint().size() - 2);
    throw Error(error.code(), std::string(name) + ": " + what, error.hint());
  }
}

Tokenizer Tokenizer::load(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / "tokenizer.json";
  if (!std::filesystem::exists(std::filesystem::symlink_status(path))) {
    const bool old = std::filesystem::exists(model_dir / "tokenizer.model");
    throw Error(ErrorCode::kModel,
                model_dir.string() + ": there is no tokenizer.json" + (old ? ", only tokenizer.model" : ""),
                old ? "convert it in Python: transformers.AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"
                    : "is the download complete?");
  }
  const io::FileMap file(path);
  const auto bytes = file.bytes();
  return from_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

std::vector<uint32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<uint32_t> out;
  if (options.add_special_tokens) out = impl_->post_processor.prefix;
  std::string storage;
  text = valid_utf8(text, storage);
  std::unique_ptr<WordCache> cache = impl_->take_cache();
  std::vector<AddedTokens::Section> sections;
  impl_->added.split(AddedTokens::Stage::kRaw, text, options.parse_special_tokens, sections);
  for (const auto& part : sections) {
    if (part.id) {
      out.push_back(*part.id);
    } else {
      impl_->encode_section(part.text, part.text.data() == text.data(), options.parse_special_tokens, *cache, out);
    }
  }
  impl_->give_back(std::move(cache));
  if (options.add_special_tokens) {
    out.insert(out.end(), impl_->post_processor.suffix.begin(), impl_->post_processor.suffix.end());
  }
  return out;
}

std::string Tokenizer::decode(std::span<const uint32_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const uint32_t id : ids) {
    if (skip_special_tokens && impl_->added.is_special(id)) continue;
    if (const std::string* added = impl_->added.decoded(id)) {
      tokens.push_back(*added);
    } else if (const auto token = impl_->vocab->text(id)) {
      tokens.emplace_back(*token);
    }
  }
  return decode_tokens(impl_->decoder, std::move(tokens));
}

const std::vector<uint32_t>& Tokenizer::prefix_ids() const { return impl_->post_processor.prefix; }

size_t Tokenizer::vocab_size() const { return std::max(impl_->vocab->n_ids(), impl_->added.n_ids()); }

std::optional<uint32_t> Tokenizer::token_to_id(std::string_view token) const {
  const auto id = impl_->added.find(std::string(token));
  return id ? id : impl_->vocab->find(token);
}

std::optional<std::string> Tokenizer::id_to_token(uint32_t id) const {
  if (const std::string* token = impl_->added.text(id)) return *token;
  if (const auto token = impl_->vocab->text(id)) return std::string(*token);
  return std::nullopt;
}

bool Tokenizer::is_special(uint32_t id) const { return impl_->added.is_special(id); }

}  // namespace bw::tokenizer
