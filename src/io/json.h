// JSON for untrusted files: nlohmann::json with limits and errors that name the file.
#pragma once

#include <filesystem>
#include <string_view>

#include <nlohmann/json.hpp>

namespace bw::io {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// Parses UTF-8 text (a byte order mark is skipped). Throws Error(kModel): "NAME: not valid JSON at byte N: ...", also
// for nesting deeper than 512 levels, a key that stands twice in one object, and an ordered object of more than 16384
// keys. Accepts NaN / Infinity nowhere.
Json parse_json(std::string_view text, std::string_view name);
OrderedJson parse_ordered_json(std::string_view text, std::string_view name);
Json load_json(const std::filesystem::path& path);
OrderedJson load_ordered_json(const std::filesystem::path& path);

}  // namespace bw::io
