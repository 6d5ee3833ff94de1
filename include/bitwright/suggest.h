// "Did you mean ...?"
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bw {

// The one of `known` that was probably meant by `word`: the nearest by Damerau-Levenshtein distance (bytes inserted,
// deleted, replaced, or two neighbours exchanged; upper and lower case are the same), if no more than a third of the
// word differs; if none is, one that is part of the word or that it is part of: `rows` of `calib-rows`, `temp` of
// `temperature` (three bytes at least). Of several, the first. nullopt: none is near, or `word` is one of them, or longer
// than 256 bytes.
std::optional<std::string> nearest_word(std::string_view word, const std::vector<std::string>& known);

}  // namespace bw
