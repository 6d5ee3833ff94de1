// Letters of ASCII, whatever the locale.
#pragma once

#include <algorithm>
#include <string>

namespace bw {

inline char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

inline std::string ascii_lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) { return ascii_lower(c); });
  return text;
}

}  // namespace bw
