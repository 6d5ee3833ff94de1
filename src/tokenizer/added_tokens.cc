#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/tokenizer_json.h"
#include "tokenizer/unicode.h"

namespace bw::tokenizer {
namespace {

bool ends_with_word(std::string_view text) { return !text.empty() && is_word(last_code_point(text).value); }
bool starts_with_word(std::string_view text) { return !text.empty() && is_word(first_code_point(text).value); }

// Where the white space at the end of `text` begins.
size_t before_spaces(std::string_view text) {
  while (!text.empty() && is_whitespace(last_code_point(text).value)) text.remove_suffix(last_code_point(text).length);
  return text.size();
}

size_t leading_spaces(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && is_whitespace(first_code_point(text.substr(n)).value))
    n += first_code_point(text.substr(n)).length;
  return n;
}

}  // namespace

AddedTokens::AddedTokens(const io::Json& list, const Vocab& vocab, const std::vector<NormalizerStep>& normalizer) {
  for (size_t i = 0; i < list.size(); ++i) add(parse(list[i], i), vocab);
  build_tries(normalizer);
}

AddedTokens::Token AddedTokens::parse(const io::Json& item, size_t index) {
  const std::string where = "added_tokens: item " + std::to_string(index);
  if (!item.is_object()) bad_tokenizer(where + " is not an object");
  const uint64_t id = uint_field(item, "id", 0, where);
  if (id > kMaxTokenId) {
    bad_tokenizer(where + ": id " + std::to_string(id) + ", at most " + std::to_string(kMaxTokenId) + " is supported");
  }
  const bool special = bool_field(item, "special", false, where);
  const std::string content = require_string(item, "content", where);
  return {content,
          content,
          bool_field(item, "single_word", false, where),
          bool_field(item, "lstrip", false, where),
          bool_field(item, "rstrip", false, where),
          bool_field(item, "normalized", !special, where),
          special};
}

void AddedTokens::add(Token token, const Vocab& vocab) {
  if (token.content.empty()) return;
  std::optional<uint32_t> id = find(token.content);
  if (!id) id = vocab.find(token.content);
  if (!id) id = std::max(static_cast<uint32_t>(vocab.n_tokens()), largest_ ? *largest_ + 1 : 0);
  if (*id > kMaxTokenId) bad_tokenizer("added_tokens: too many ids");
  ids_[token.content] = *id;
  largest_ = std::max(*id, largest_.value_or(0));
  n_ids_ = *largest_ + size_t{1};
  tokens_.insert_or_assign(*id, std::move(token));
}

void AddedTokens::build_tries(const std::vector<NormalizerStep>& normalizer) {
  std::vector<std::pair<std::string, uint32_t>> raw, normalized;
  for (auto& [id, token] : tokens_) {
    bool at_start = false;
    if (token.normalized) token.decoded = normalize(normalizer, token.content, at_start);
    if (!token.decoded.empty()) (token.normalized ? normalized : raw).emplace_back(token.decoded, id);
  }
  const auto trie = [](std::vector<std::pair<std::string, uint32_t>>& keys) {
    // Tokens that the normalizer makes equal: the one with the smaller id is found.
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
               keys.end());
    return ByteTrie({keys.begin(), keys.end()});
  };
  raw_ = trie(raw);
  normalized_ = trie(normalized);
}

void AddedTokens::split(Stage stage, std::string_view text, bool special, std::vector<Section>& sections) const {
  const ByteTrie& trie = stage == Stage::kRaw ? raw_ : normalized_;
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !trie.empty();) {
    if (!trie.may_start(static_cast<unsigned char>(text[at]))) {
      ++at;
      continue;
    }
    size_t length = 0;
    uint32_t id = 0;
    trie.for_each_prefix(text.substr(at), [&](size_t n, uint32_t value) {
      length = n;
      id = value;
    });
    if (length == 0) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at += length;
    const Token& token = tokens_.at(id);
    if (token.special && !special) continue;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(done, before_spaces(text.substr(0, begin)));
    if (token.rstrip) end += leading_spaces(text.substr(end));
    if (done < begin) sections.push_back({text.substr(done, begin - done), std::nullopt});
    sections.push_back({{}, id});
    done = end;
  }
  if (done < text.size()) sections.push_back({text.substr(done), std::nullopt});
}

std::optional<uint32_t> AddedTokens::find(const std::string& token) const {
  const auto it = ids_.find(token);
  return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

const std::string* AddedTokens::text(uint32_t id) const {
  const auto it = tokens_.find(id);
  return it == tokens_.end() ? nullptr : &it->second.content;
}

const std::string* AddedTokens::decoded(uint32_t id) const {
  const auto it = tokens_.find(id);
  return it == tokens_.end() ? nullptr : &it->second.decoded;
}

bool AddedTokens::is_special(uint32_t id) const {
  const auto it = tokens_.find(id);
  return it != tokens_.end() && it->second.special;
}

}  // namespace bw::tokenizer
