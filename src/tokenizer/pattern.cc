#include "tokenizer/pattern.h"

#include <algorithm>
#include <optional>

#include "tokenizer/tokenizer_json.h"

namespace bw::tokenizer {
namespace {

// Calls found(begin, end) for every match in order.
template <typename Found>
void for_each_match(const Pattern& pattern, std::string_view text, Found&& found) {
  if (const auto* literal = std::get_if<std::string>(&pattern)) {
    if (literal->empty()) return;
    for (size_t at = text.find(*literal); at != std::string_view::npos;
         at = text.find(*literal, at + literal->size())) {
      found(at, at + literal->size());
    }
    return;
  }
  RegexSearch search(std::get<Regex>(pattern), text);
  for (Match match; search.next(match);) found(match.begin, match.end);
}

}  // namespace

Pattern parse_pattern(const io::Json& object, const std::string& where) {
  const auto it = object.find("pattern");
  if (it == object.end()) bad_tokenizer(where + ": \"pattern\" is missing");
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("String")) return require_string(*it, "String", where);
  if (it->is_object() && it->contains("Regex")) return Regex::compile(require_string(*it, "Regex", where));
  bad_tokenizer(where + R"(: "pattern" must be {"String": ...} or {"Regex": ...})");
}

void find_parts(const Pattern& pattern, std::string_view text, std::vector<Part>& parts) {
  size_t done = 0;
  for_each_match(pattern, text, [&](size_t begin, size_t end) {
    if (done < begin) parts.push_back({done, begin, false});
    parts.push_back({begin, end, true});
    done = end;
  });
  if (done < text.size()) parts.push_back({done, text.size(), false});
}

void check_growth(size_t size, size_t most) {
  if (size > most) bad_tokenizer("a text grows beyond " + std::to_string(most) + " bytes on its way");
}

std::string replace_all(const Pattern& pattern, std::string_view text, std::string_view content, size_t most) {
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for_each_match(pattern, text, [&](size_t begin, size_t end) {
    out.append(text, done, begin - done).append(content);
    done = end;
    check_growth(out.size(), most);
  });
  check_growth(out.size() + text.size() - done, most);
  return out.append(text, done);
}

Behavior parse_behavior(const io::Json& object, Behavior absent, const std::string& where) {
  const std::string name = string_field(object, "behavior", "", where);
  if (name.empty()) return absent;
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  bad_tokenizer(where + ": behavior " + shown(name) + " is not known");
}

namespace {

// Appends `part` to the last kept one, or keeps it as a new one.
void keep(std::vector<Part>& parts, size_t& n, const Part& part, bool merge) {
  if (merge && n > 0) {
    parts[n - 1].begin = std::min(parts[n - 1].begin, part.begin);
    parts[n - 1].end = std::max(parts[n - 1].end, part.end);
  } else {
    parts[n++] = part;
  }
}

}  // namespace

void apply_behavior(Behavior behavior, std::vector<Part>& parts) {
  size_t n = 0;
  bool previous_match = false;
  const auto walk = [&](auto&& merges) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part part = parts[i];
      keep(parts, n, part, merges(part.is_match));
      previous_match = part.is_match;
    }
    parts.resize(n);
  };
  switch (behavior) {
    case Behavior::kIsolated:
      return;
    case Behavior::kRemoved:
      std::erase_if(parts, [](const Part& part) { return part.is_match; });
      return;
    case Behavior::kContiguous:
      return walk([&](bool is_match) { return is_match == previous_match; });
    case Behavior::kMergedWithPrevious:
      return walk([&](bool is_match) { return is_match && !previous_match; });
    case Behavior::kMergedWithNext:
      std::reverse(parts.begin(), parts.end());
      walk([&](bool is_match) { return is_match && !previous_match; });
      std::reverse(parts.begin(), parts.end());
      return;
  }
}

}  // namespace bw::tokenizer
