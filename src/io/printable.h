// Text from untrusted files in error messages.
#pragma once

#include <string>
#include <string_view>

namespace bw::io {

// `text` fit for one line of an error: anything but printable ASCII becomes '?', and a long text is cut.
inline std::string printable(std::string_view text) {
  constexpr size_t kLimit = 120;
  std::string out;
  for (const char c : text.substr(0, kLimit)) out += c >= 0x20 && c < 0x7f ? c : '?';
  if (text.size() > kLimit) out += "...";
  return out;
}

}  // namespace bw::io
