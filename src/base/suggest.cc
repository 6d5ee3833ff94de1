#include "bitwright/suggest.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/ascii.h"

namespace bw {
namespace {

constexpr size_t kLongest = 256, kShortestPart = 3;

// Optimal string alignment: no part of a word is changed twice.
size_t distance(std::string_view a, std::string_view b) {
  std::array<std::vector<size_t>, 3> rows;  // of this position in `a`, the one before, the one before that
  for (auto& row : rows) row.resize(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::rotate(rows.begin(), rows.begin() + 2, rows.end());
    rows[0][0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = ascii_lower(a[i - 1]) == ascii_lower(b[j - 1]);
      rows[0][j] = std::min({rows[1][j] + 1, rows[0][j - 1] + 1, rows[1][j - 1] + (same ? 0 : 1)});
      const bool exchanged = i > 1 && j > 1 && ascii_lower(a[i - 1]) == ascii_lower(b[j - 2]) &&
                             ascii_lower(a[i - 2]) == ascii_lower(b[j - 1]);
      if (exchanged) rows[0][j] = std::min(rows[0][j], rows[2][j - 2] + 1);
    }
  }
  return rows[0][b.size()];
}

// Where whole parts of `longer`, as dashes divide it, are `shorter`: its first ones, which may be cut short, or its
// last.
bool is_part(std::string_view shorter, std::string_view longer) {
  if (shorter.size() < kShortestPart || shorter.size() >= longer.size()) return false;
  return longer.starts_with(shorter) ||
         (longer.ends_with(shorter) && longer[longer.size() - shorter.size() - 1] == '-');
}

// The first known word that is a part of this one, or that this one is a part of.
std::optional<std::string> related_word(std::string_view word, const std::vector<std::string>& known) {
  const auto bare = [](std::string_view w) { return w.substr(std::min(w.size(), w.find_first_not_of('-'))); };
  const auto related = std::find_if(known.begin(), known.end(), [&](const std::string& other) {
    return is_part(bare(word), bare(other)) || is_part(bare(other), bare(word));
  });
  return related == known.end() ? std::nullopt : std::optional(*related);
}

}  // namespace

std::optional<std::string> nearest_word(std::string_view word, const std::vector<std::string>& known) {
  if (word.size() > kLongest || std::find(known.begin(), known.end(), word) != known.end()) return std::nullopt;
  std::optional<std::string> best;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& other : known) {
    if (other.size() > kLongest) continue;
    const size_t d = distance(word, other);
    if (d >= least || d >= other.size()) continue;  // nothing of the word would be left
    least = d;
    best = other;
  }
  return best ? best : related_word(word, known);
}

}  // namespace bw
