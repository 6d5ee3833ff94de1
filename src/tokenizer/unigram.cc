#include "tokenizer/unigram.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "tokenizer/unicode.h"

namespace bw::tokenizer {
namespace {

constexpr double kUnkPenalty = 10.0;  // below the worst token, as in SentencePiece

}  // namespace

Unigram::Unigram(const io::Json& model, const TokenizerFile& file) {
  byte_fallback_ = bool_field(model, "byte_fallback", false, "model");
  fuse_unk_ = bool_field(model, "fuse_unk", true, "model");
  if (file.pieces.empty()) bad_tokenizer("model: Unigram with an empty vocabulary");
  double lowest = std::numeric_limits<double>::infinity();
  std::vector<std::pair<std::string_view, uint32_t>> keys;
  for (uint32_t id = 0; id < file.pieces.size(); ++id) {
    const auto& [token, score] = file.pieces[id];
    vocab_.add(token, id);
    scores_.push_back(score);
    lowest = std::min(lowest, score);
    if (!token.empty()) keys.emplace_back(token, id);
  }
  trie_ = ByteTrie(std::move(keys));
  unk_score_ = lowest - kUnkPenalty;
  const uint64_t unk = uint_field(model, "unk_id", file.pieces.size(), "model");
  if (unk < file.pieces.size()) {
    unk_id_ = static_cast<uint32_t>(unk);
  } else if (model.contains("unk_id") && !model["unk_id"].is_null()) {
    bad_tokenizer("model: unk_id " + std::to_string(unk) + ", but there are " + std::to_string(file.pieces.size()) +
                  " tokens");
  }
  for (unsigned b = 0; b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", b);
    byte_ids_[b] = vocab_.find(text);
  }
}

void Unigram::no_unk() { bad_tokenizer("model: the text has a character without a token, and there is no unk_id"); }

void Unigram::encode(std::string_view word, WordCache& cache, std::vector<uint32_t>& out) const {
  const bool keep = word.size() <= WordCache::kMaxWord;
  const uint64_t hash = keep ? hash_text(word) : 0;
  if (keep && cache.find(word, hash, out)) return;
  const size_t n_before = out.size();
  append_best(word, out);
  if (keep) cache.keep(word, hash, std::span(out).subspan(n_before));
}

void Unigram::append_best(std::string_view word, std::vector<uint32_t>& out) const {
  constexpr size_t kNowhere = ~size_t{0};
  struct Node {  // the best path that ends here
    double score = 0;
    size_t begin = kNowhere;  // of its last token
    uint32_t id = 0;
  };
  std::vector<Node> nodes(word.size() + 1);
  for (size_t at = 0; at < word.size();) {
    const size_t length = first_code_point(word.substr(at)).length;
    const double score = nodes[at].score;
    const auto offer = [&](size_t n, double candidate, uint32_t id) {
      Node& node = nodes[at + n];
      if (node.begin == kNowhere || candidate > node.score) node = {candidate, at, id};
    };
    bool has_single = false;
    trie_.for_each_prefix(word.substr(at), [&](size_t n, uint32_t id) {
      offer(n, scores_[id] + score, id);
      has_single |= n == length;
    });
    if (!has_single) {
      if (!unk_id_) no_unk();
      offer(length, unk_score_ + score, *unk_id_);
    }
    at += length;
  }
  // Backwards; neighbouring unknown characters become one token.
  std::vector<std::pair<size_t, size_t>> tokens;  // begin, end
  bool in_unknown = false;
  for (size_t end = word.size(); end > 0;) {
    const Node& node = nodes[end];
    const bool unknown = fuse_unk_ && unk_id_ && node.id == *unk_id_;
    if (unknown && in_unknown) {
      tokens.back().first = node.begin;
    } else {
      tokens.emplace_back(node.begin, end);
    }
    in_unknown = unknown;
    end = node.begin;
  }
  for (auto it = tokens.rbegin(); it != tokens.rend(); ++it)
    append_token(word.substr(it->first, it->second - it->first), out);
}

void Unigram::append_token(std::string_view token, std::vector<uint32_t>& out) const {
  if (const auto id = vocab_.find(token)) {
    out.push_back(*id);
    return;
  }
  const auto has_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)].has_value(); };
  if (byte_fallback_ && std::all_of(token.begin(), token.end(), has_id)) {
    for (const char c : token) out.push_back(*byte_ids_[static_cast<unsigned char>(c)]);
    return;
  }
  if (!unk_id_) no_unk();
  out.push_back(*unk_id_);
}

}  // namespace bw::tokenizer
