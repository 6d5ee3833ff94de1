#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <queue>

namespace bw::tokenizer {
namespace {

constexpr char32_t kLow = 0x800;        // covers the byte-level alphabet
constexpr size_t kJointBits = 1 << 22;  // 512 KiB: a tenth filled by the largest vocabularies
constexpr size_t kWholeWord = 16;       // words up to this many bytes are not cut
constexpr size_t kShortWord = 32;       // symbols; above, a heap beats scanning
constexpr size_t kCodePoints = 0x110000;
constexpr uint32_t kNoRank = ~0u;

std::string byte_token(unsigned byte) {
  char text[8];
  std::snprintf(text, sizeof text, "<0x%02X>", byte);
  return text;
}

size_t character_length(std::string_view text) { return first_code_point(text).length; }

}  // namespace

void MergeTable::reserve(size_t n) {
  entries_.assign(std::bit_ceil(2 * n + 2), {});
  mask_ = entries_.size() - 1;
}

void MergeTable::set(uint32_t left, uint32_t right, Merge merge) {
  const uint64_t key = uint64_t{left} << 32 | right;
  size_t slot = place(key);
  while (entries_[slot].key != kEmpty && entries_[slot].key != key) slot = (slot + 1) & mask_;
  entries_[slot] = {key, merge};
}

Bpe::Bpe(const io::Json& model, const TokenizerFile& file, Vocab vocab) : vocab_(std::move(vocab)) {
  const auto dropout = model.find("dropout");
  if (dropout != model.end() && !dropout->is_null() && *dropout != 0) {
    bad_tokenizer("model: BPE with dropout is not supported", "set \"dropout\" to null");
  }
  unk_token_ = string_field(model, "unk_token", "", "model");
  has_unk_ = model.contains("unk_token") && !model["unk_token"].is_null();
  if (has_unk_) unk_id_ = vocab_.find(unk_token_);
  prefix_ = string_field(model, "continuing_subword_prefix", "", "model");
  suffix_ = string_field(model, "end_of_word_suffix", "", "model");
  fuse_unk_ = bool_field(model, "fuse_unk", false, "model");
  byte_fallback_ = bool_field(model, "byte_fallback", false, "model");
  ignore_merges_ = bool_field(model, "ignore_merges", false, "model");
  for (unsigned b = 0; b < 256; ++b) byte_ids_[b] = vocab_.find(byte_token(b));
  if (prefix_.empty() && suffix_.empty()) {
    low_ids_.resize(kLow);
    std::string character;
    for (char32_t c = 0; c < kLow; ++c) {
      character.clear();
      append_utf8(character, c);
      low_ids_[c] = vocab_.find(character);
    }
  }
  read_merges(file);
  find_joints(file);
}

void Bpe::read_merges(const TokenizerFile& file) {
  merges_.reserve(file.merges.size());
  std::string merged;
  const auto require = [&](std::string_view token, size_t rank) {
    const auto id = vocab_.find(token);
    if (!id) {
      bad_tokenizer("model.merges: item " + std::to_string(rank) + " names the token " + shown(token) +
                    ", which is not in the vocabulary");
    }
    return *id;
  };
  for (size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto& [left, right] = file.merges[rank];
    const uint32_t left_id = require(left, rank);
    const uint32_t right_id = require(right, rank);
    if (right.size() < prefix_.size()) {
      bad_tokenizer("model.merges: item " + std::to_string(rank) + ": " + shown(right) +
                    " is shorter than the prefix " + shown(prefix_));
    }
    merged.assign(left).append(right, prefix_.size());
    merges_.set(left_id, right_id, {static_cast<uint32_t>(rank), require(merged, rank)});
  }
}

size_t Bpe::joint(char32_t left, char32_t right) {
  return ((uint64_t{left} << 21 | right) * 0x9E3779B97F4A7C15u >> 20) % kJointBits;
}

void Bpe::find_joints(const TokenizerFile& file) {
  if (!prefix_.empty() || !suffix_.empty()) return;  // then a symbol depends on where the word was cut
  known_.resize(kCodePoints / 64);
  for (uint32_t id = 0; id < vocab_.n_ids(); ++id) {
    const auto token = vocab_.text(id);
    if (!token || token->empty()) continue;
    const CodePoint c = first_code_point(*token);
    if (c.length == token->size()) known_[c.value / 64] |= uint64_t{1} << c.value % 64;
  }
  joints_.resize(kJointBits / 64);
  for (const auto& [left, right] : file.merges) {
    if (left.empty() || right.empty()) continue;  // such a merge joins nothing
    const size_t bit = joint(last_code_point(left).value, first_code_point(right).value);
    joints_[bit / 64] |= uint64_t{1} << bit % 64;
  }
}

bool Bpe::may_cut(char32_t left, char32_t right) const {
  const size_t bit = joint(left, right);
  return (joints_[bit / 64] >> bit % 64 & 1) == 0 && is_known(left) && is_known(right);
}

void Bpe::encode(std::string_view word, WordCache& cache, std::vector<uint32_t>& out) const {
  if (ignore_merges_) {
    if (const auto id = vocab_.find(word)) {
      out.push_back(*id);
      return;
    }
  }
  if (joints_.empty() || word.size() <= kWholeWord) {
    encode_part(word, cache, out);
    return;
  }
  size_t begin = 0;
  CodePoint left = first_code_point(word);
  for (size_t at = left.length; at < word.size();) {
    const CodePoint right = first_code_point(word.substr(at));
    if (may_cut(left.value, right.value)) {
      encode_part(word.substr(begin, at - begin), cache, out);
      begin = at;
    }
    at += right.length;
    left = right;
  }
  encode_part(word.substr(begin), cache, out);
}

void Bpe::encode_part(std::string_view part, WordCache& cache, std::vector<uint32_t>& out) const {
  const bool keep = part.size() <= WordCache::kMaxWord;
  const uint64_t hash = keep ? hash_text(part) : 0;
  if (keep && cache.find(part, hash, out)) return;
  std::vector<uint32_t>& symbols = cache.scratch();
  symbols.clear();
  append_symbols(part, symbols);
  if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
  if (keep) cache.keep(part, hash, symbols);
}

std::optional<uint32_t> Bpe::symbol_of(std::string_view character, bool first, bool last) const {
  if (!low_ids_.empty()) {
    const char32_t c = first_code_point(character).value;
    return c < kLow ? low_ids_[c] : vocab_.find(character);
  }
  std::string symbol = first ? "" : prefix_;
  symbol.append(character);
  if (last) symbol += suffix_;
  return vocab_.find(symbol);
}

void Bpe::append_symbols(std::string_view part, std::vector<uint32_t>& symbols) const {
  bool unknown = false;  // an unk_token waits to be written: further unknown characters may fuse with it
  const auto flush = [&] {
    if (unknown) symbols.push_back(*unk_id_);
    unknown = false;
  };
  for (size_t at = 0; at < part.size();) {
    const size_t length = character_length(part.substr(at));
    const std::string_view character = part.substr(at, length);
    const auto id = symbol_of(character, at == 0, at + length == part.size());
    at += length;
    if (id) {
      flush();
      symbols.push_back(*id);
      continue;
    }
    if (byte_fallback_) {
      const auto has_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)].has_value(); };
      if (std::all_of(character.begin(), character.end(), has_id)) {
        // A waiting unk_token stays behind these bytes, as in the reference.
        for (const char c : character) symbols.push_back(*byte_ids_[static_cast<unsigned char>(c)]);
        continue;
      }
    }
    if (!has_unk_) continue;  // as in the reference: without unk_token, unknown characters vanish
    if (!unk_id_) bad_tokenizer("model: unk_token " + shown(unk_token_) + " is not in the vocabulary but is needed");
    if (!fuse_unk_) flush();
    unknown = true;
  }
  flush();
}

void Bpe::merge_short(std::vector<uint32_t>& symbols) const {
  size_t n = symbols.size();
  if (n < 2) return;
  std::array<MergeTable::Merge, kShortWord> merges;  // of the pair that begins here
  const auto look_up = [&](size_t i) {
    const MergeTable::Merge* merge = merges_.find(symbols[i], symbols[i + 1]);
    merges[i] = merge ? *merge : MergeTable::Merge{kNoRank, 0};
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoRank) break;
    symbols[best] = merges[best].id;
    std::copy(symbols.begin() + static_cast<ptrdiff_t>(best) + 2, symbols.begin() + static_cast<ptrdiff_t>(n),
              symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(merges.begin() + best + 1, merges.begin() + n - 1, merges.begin() + best);
    --n;
    if (best + 1 < n) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  symbols.resize(n);
}

void Bpe::merge_long(std::vector<uint32_t>& symbols) const {
  // A linked list in arrays, and a heap of (rank, position). An entry of the heap whose rank is no longer the one of
  // its position is stale.
  const size_t n = symbols.size();
  if (n >= kNoRank) bad_tokenizer("a word of " + std::to_string(n) + " symbols is too long");
  struct Link {
    uint32_t previous, next;  // kNoRank at the ends
    MergeTable::Merge merge;  // of this symbol and the next
  };
  std::vector<Link> links(n);
  using Candidate = std::pair<uint32_t, uint32_t>;  // rank, position
  std::vector<Candidate> candidates;
  candidates.reserve(n);
  const auto look_up = [&](uint32_t i) {
    Link& link = links[i];
    link.merge.rank = kNoRank;
    if (link.next == kNoRank) return false;
    const MergeTable::Merge* merge = merges_.find(symbols[i], symbols[link.next]);
    if (merge == nullptr) return false;
    link.merge = *merge;
    return true;
  };
  for (uint32_t i = 0; i < n; ++i) links[i] = {i == 0 ? kNoRank : i - 1, i + 1 == n ? kNoRank : i + 1, {}};
  for (uint32_t i = 0; i < n; ++i) {
    if (look_up(i)) candidates.emplace_back(links[i].merge.rank, i);
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap(std::greater<>(), std::move(candidates));
  while (!heap.empty()) {
    const auto [rank, at] = heap.top();
    heap.pop();
    Link& link = links[at];
    if (link.merge.rank != rank) continue;
    symbols[at] = link.merge.id;
    Link& gone = links[link.next];
    gone.merge.rank = kNoRank;
    link.next = gone.next;
    if (link.next != kNoRank) links[link.next].previous = at;
    if (look_up(at)) heap.emplace(link.merge.rank, at);
    if (link.previous != kNoRank && look_up(link.previous))
      heap.emplace(links[link.previous].merge.rank, link.previous);
  }
  size_t n_left = 0;
  for (uint32_t i = 0; i != kNoRank; i = links[i].next) symbols[n_left++] = symbols[i];
  symbols.resize(n_left);
}

}  // namespace bw::tokenizer
