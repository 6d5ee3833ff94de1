// Typed access to the keys of config.json, with errors that name the key.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "io/json.h"

namespace bw::model {

// Bound of counts of positions, which no model comes near.
inline constexpr size_t kMaxPositions = size_t{1} << 40;

// A JSON object and where it stands. A key that holds null counts as absent. All errors are Error(kModel).
class ConfigReader {
 public:
  // `json` must outlive the reader. Throws if it is no object.
  ConfigReader(const io::Json& json, std::string name);

  // Null if absent.
  const io::Json* find(std::string_view key) const;
  // A count in [1, limit], under the first of `keys` or one of its aliases (which must not contradict it). 64.0 counts
  // as 64.
  std::optional<size_t> count(std::initializer_list<std::string_view> keys, size_t limit) const;
  size_t require_count(std::initializer_list<std::string_view> keys, size_t limit) const;
  // A finite number above 0.
  std::optional<double> positive(std::string_view key) const;
  double require_positive(std::string_view key) const;
  bool flag(std::string_view key, bool absent) const;
  std::optional<std::string> text(std::string_view key) const;

  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const;
  // A value as it may stand in an error.
  static std::string show(const io::Json& value);

 private:
  const io::Json& json_;
  std::string name_;
};

// The value as a whole number in [0, limit], if it is one.
std::optional<size_t> whole_number(const io::Json& value, size_t limit);

}  // namespace bw::model
