#include "tokenizer/byte_trie.h"

#include <algorithm>

namespace bw::tokenizer {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, uint32_t>> keys) {
  if (keys.empty()) return;
  std::sort(keys.begin(), keys.end());
  struct Range {  // keys[begin, end) share the `depth` bytes that lead to `node`
    size_t begin, end, depth;
  };
  // Breadth first: ranges[i] belongs to nodes_[i].
  std::vector<Range> ranges{{0, keys.size(), 0}};
  nodes_.emplace_back();
  for (size_t i = 0; i < ranges.size(); ++i) {
    Range range = ranges[i];
    if (keys[range.begin].first.size() == range.depth)
      nodes_[i].value = static_cast<int32_t>(keys[range.begin++].second);
    nodes_[i].first_child = static_cast<uint32_t>(nodes_.size());
    while (range.begin < range.end) {
      const char byte = keys[range.begin].first[range.depth];
      size_t end = range.begin + 1;
      while (end < range.end && keys[end].first[range.depth] == byte) ++end;
      ranges.push_back({range.begin, end, range.depth + 1});
      nodes_.emplace_back().byte = static_cast<uint8_t>(byte);
      ++nodes_[i].n_children;
      range.begin = end;
    }
  }
  for (uint32_t i = 0; i < nodes_[0].n_children; ++i) first_.set(nodes_[1 + i].byte);
}

}  // namespace bw::tokenizer
