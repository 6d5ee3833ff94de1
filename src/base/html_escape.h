// Text in HTML.
#pragma once

#include <string>
#include <string_view>

namespace bw {

// With the five characters that mean something to HTML as references, as Python's markupsafe writes them: it can stand
// between tags and in quoted attributes.
inline std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace bw
