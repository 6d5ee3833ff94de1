#include "model/config_reader.h"

#include <cmath>
#include <utility>

#include "bitwright/error.h"
#include "io/printable.h"

namespace bw::model {

std::optional<size_t> whole_number(const io::Json& value, size_t limit) {
  if (value.is_number_integer()) {
    const bool negative = !value.is_number_unsigned() && value.get<int64_t>() < 0;
    const auto n = value.get<uint64_t>();
    return !negative && n <= limit ? std::optional<size_t>(n) : std::nullopt;
  }
  if (!value.is_number_float()) return std::nullopt;
  const auto x = value.get<double>();
  if (!(x >= 0 && x <= static_cast<double>(limit)) || x != std::floor(x)) return std::nullopt;
  return static_cast<size_t>(x);
}

ConfigReader::ConfigReader(const io::Json& json, std::string name) : json_(json), name_(std::move(name)) {
  if (!json_.is_object()) fail("not a JSON object");
}

void ConfigReader::fail(const std::string& what, const std::string& hint) const {
  throw Error(ErrorCode::kModel, name_ + ": " + what, hint);
}

std::string ConfigReader::show(const io::Json& value) {
  return io::printable(value.dump(-1, ' ', true, io::Json::error_handler_t::replace));
}

const io::Json* ConfigReader::find(std::string_view key) const {
  const auto at = json_.find(key);
  return at == json_.end() || at->is_null() ? nullptr : &*at;
}

std::optional<size_t> ConfigReader::count(std::initializer_list<std::string_view> keys, size_t limit) const {
  std::optional<size_t> result;
  std::string_view from;
  for (const std::string_view key : keys) {
    const io::Json* value = find(key);
    if (value == nullptr) continue;
    const std::optional<size_t> n = whole_number(*value, limit);
    if (!n || *n == 0) {
      fail(std::string(key) + ": expected a whole number from 1 to " + std::to_string(limit) + ", found " +
           show(*value));
    }
    if (result && *result != *n) {
      fail(std::string(from) + " is " + std::to_string(*result) + ", but " + std::string(key) + " is " +
           std::to_string(*n));
    }
    if (!result) from = key;
    result = n;
  }
  return result;
}

size_t ConfigReader::require_count(std::initializer_list<std::string_view> keys, size_t limit) const {
  const std::optional<size_t> n = count(keys, limit);
  if (!n) fail(std::string(*keys.begin()) + " is missing");
  return *n;
}

std::optional<double> ConfigReader::positive(std::string_view key) const {
  const io::Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const double x = value->is_number() ? value->get<double>() : 0.0;
  if (!(x > 0) || !std::isfinite(x)) fail(std::string(key) + ": expected a number above 0, found " + show(*value));
  return x;
}

double ConfigReader::require_positive(std::string_view key) const {
  const std::optional<double> x = positive(key);
  if (!x) fail(std::string(key) + " is missing");
  return *x;
}

bool ConfigReader::flag(std::string_view key, bool absent) const {
  const io::Json* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) fail(std::string(key) + ": expected true or false, found " + show(*value));
  return value->get<bool>();
}

std::optional<std::string> ConfigReader::text(std::string_view key) const {
  const io::Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(std::string(key) + ": expected a string, found " + show(*value));
  return value->get<std::string>();
}

}  // namespace bw::model
