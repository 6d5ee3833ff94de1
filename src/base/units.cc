#include "bitwright/units.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/ascii.h"
#include "bitwright/error.h"

namespace bw {

std::string format_bytes(uint64_t bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double x = static_cast<double>(bytes);
  int u = 0;
  while (x >= 999.5 && u < 5) {
    x /= 1000;
    ++u;
  }
  return u == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.{}f} {}", x, x < 99.95 ? 1 : 0, units[u]);
}

uint64_t parse_bytes(std::string_view text, std::string_view option) {
  const auto fail = [&]() -> Error {
    return Error(ErrorCode::kUsage, fmt::format("{}: '{}' is not a size", option, text),
                 "write a number with a unit, such as 3.2GB, 800MB or 2GiB");
  };
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || !(value >= 0) || !std::isfinite(value)) throw fail();
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  std::string lower = ascii_lower(std::string(unit));
  if (!lower.empty() && lower.back() == 'b') lower.pop_back();
  double factor = 1;
  const std::string_view prefixes = "kmgtp";
  if (!lower.empty()) {
    const size_t p = prefixes.find(lower[0]);
    const bool binary = lower.size() == 2 && lower[1] == 'i';
    if (p == std::string_view::npos || (lower.size() != 1 && !binary)) throw fail();
    factor = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(p + 1));
  }
  if (value * factor > 0x1p62) throw fail();
  return static_cast<uint64_t>(std::llround(value * factor));
}

}  // namespace bw
