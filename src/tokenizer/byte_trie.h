// A compact trie over byte strings: longest and all prefixes of a text that are keys.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace bw::tokenizer {

class ByteTrie {
 public:
  ByteTrie() = default;
  // Keys must be distinct and not empty; values must fit an int32_t and not be negative.
  explicit ByteTrie(std::vector<std::pair<std::string_view, uint32_t>> keys);

  bool empty() const { return nodes_.empty(); }
  bool may_start(unsigned char byte) const { return first_[byte]; }

  // Calls found(length, value) for every key that `text` begins with, shortest first.
  template <typename Found>
  void for_each_prefix(std::string_view text, Found&& found) const {
    if (nodes_.empty()) return;
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (nodes_[node].value >= 0) found(i + 1, static_cast<uint32_t>(nodes_[node].value));
    }
  }

 private:
  struct Node {
    uint32_t first_child = 0;
    int32_t value = -1;
    uint16_t n_children = 0;
    uint8_t byte = 0;
  };
  // 0 (the root) if there is none.
  uint32_t child(uint32_t node, unsigned char byte) const {
    uint32_t first = nodes_[node].first_child;
    uint32_t count = nodes_[node].n_children;
    while (count > 0) {
      const uint32_t half = count / 2;
      const Node& middle = nodes_[first + half];
      if (middle.byte == byte) return first + half;
      if (middle.byte < byte) {
        first += half + 1;
        count -= half + 1;
      } else {
        count = half;
      }
    }
    return 0;
  }

  std::vector<Node> nodes_;  // children of a node are consecutive, sorted by byte
  std::bitset<256> first_;
};

}  // namespace bw::tokenizer
