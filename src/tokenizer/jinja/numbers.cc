#include <charconv>
#include <cmath>
#include <limits>

#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/text.h"

namespace bw::tokenizer::jinja {
namespace {

// Without surrounding white space, a sign and '_' between digits; nullopt if '_' stands elsewhere.
std::optional<std::string> plain_digits(std::string_view text, bool& negative) {
  text = strip_space(text);
  negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto digit = [&](size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
    } else if (i == 0 || !digit(i - 1) || !digit(i + 1)) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) {
  bool negative = false;
  const auto digits = plain_digits(text, negative);
  if (!digits || digits->empty() || digits->find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  std::string all(negative, '-');
  all += *digits;
  int64_t value = 0;
  const auto result = std::from_chars(all.data(), all.data() + all.size(), value);
  if (result.ec != std::errc()) throw Fault("integer " + all.substr(0, 40) + " is too large");
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  bool negative = false;
  const auto digits = plain_digits(text, negative);
  if (!digits || digits->empty()) return std::nullopt;
  const std::string word = lower(*digits);
  const double sign = negative ? -1.0 : 1.0;
  if (word == "inf" || word == "infinity") return sign * std::numeric_limits<double>::infinity();
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(word.data(), word.data() + word.size(), value);
  if (result.ptr != word.data() + word.size() || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {
    value = word.find("e-") == std::string::npos ? std::numeric_limits<double>::infinity() : 0.0;
  }
  return sign * value;
}

int64_t to_integer(double value) {
  if (std::isnan(value)) throw Fault("cannot convert float NaN to integer");
  if (std::isinf(value)) throw Fault("cannot convert float infinity to integer");
  if (std::fabs(value) >= 0x1p63) throw Fault("integer arithmetic beyond 64 bits is not supported");
  return static_cast<int64_t>(value);
}

}  // namespace bw::tokenizer::jinja
