#include "terminal.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include "bitwright/units.h"

namespace bw::cli {
namespace {

constexpr size_t kUsualColumns = 80;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// As the C library chooses the locale for characters.
bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = variable(name);
    if (value.empty()) continue;
    std::string lower(value);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

// The character at the beginning of a text: its bytes, and its columns.
struct Character {
  size_t bytes = 1, columns = 1;
  bool printable = false;
};

Character first_character(std::string_view text) {
  utf8proc_int32_t code = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const utf8proc_ssize_t n = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), &code);
  if (n <= 0) return {};
  const utf8proc_category_t category = utf8proc_category(code);
  const bool control = category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
                       category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
  return {static_cast<size_t>(n), static_cast<size_t>(std::max(0, utf8proc_charwidth(code))), !control};
}

std::string bar(double share, size_t columns, const Look& look) {
  std::string text;
  if (!look.utf8) {
    const auto full = static_cast<size_t>(share * static_cast<double>(columns - 2));
    return "[" + std::string(full, '#') + std::string(columns - 2 - full, '-') + "]";
  }
  static constexpr std::string_view kEighths[] = {"",       "\u258f", "\u258e", "\u258d",
                                                  "\u258c", "\u258b", "\u258a", "\u2589"};
  const auto eighths = static_cast<size_t>(share * static_cast<double>(8 * columns));
  for (size_t i = 0; i < eighths / 8; ++i) text += "\u2588";
  text += kEighths[eighths % 8];
  for (size_t i = (eighths + 7) / 8; i < columns; ++i) text += "\u2591";
  return text;
}

double share_of(const Progress& p) { return p.total > 0 ? std::clamp(p.done / p.total, 0.0, 1.0) : 0.0; }

std::string eta_text(const Progress& p) { return "ETA " + (p.eta ? duration(*p.eta) : std::string("-:--")); }

}  // namespace

Look look_of(int fd) {
  Look look;
  const std::string_view term = variable("TERM");
  look.live = isatty(fd) != 0 && term != "dumb" && !term.empty();
  look.colour = look.live && variable("NO_COLOR").empty();
  look.utf8 = locale_is_utf8();
  return look;
}

size_t columns_of(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualColumns;
}

std::string coloured(std::string_view text, Colour colour, const Look& look) {
  if (!look.colour || text.empty()) return std::string(text);
  static constexpr int kCodes[] = {31, 32, 33, 36};
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<size_t>(colour)], text);
}

size_t width_of(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const Character c = first_character(text);
    columns += c.columns;
    text.remove_prefix(c.bytes);
  }
  return columns;
}

std::string shown(std::string_view text, const Look& look) {
  std::string out;
  while (!text.empty()) {
    const Character c = first_character(text);
    out += c.printable && (look.utf8 || c.bytes == 1) ? text.substr(0, c.bytes) : std::string_view("?");
    text.remove_prefix(c.bytes);
  }
  return out;
}

std::string cut(std::string_view text, size_t columns) {
  if (width_of(text) <= columns) return std::string(text);
  constexpr std::string_view kDots = "..";
  const size_t dots = std::min(kDots.size(), columns), room = columns - dots;
  size_t bytes = 0, used = 0;
  while (bytes < text.size()) {
    const Character c = first_character(text.substr(bytes));
    if (used + c.columns > room) break;
    used += c.columns;
    bytes += c.bytes;
  }
  return std::string(text.substr(0, bytes)) + std::string(kDots.substr(0, dots));
}

std::string duration(double seconds) {
  const auto s = static_cast<uint64_t>(std::clamp(std::ceil(seconds), 0.0, 1e12));
  const uint64_t minutes = s / 60, hours = minutes / 60;
  if (hours >= 100) return fmt::format("{} d {} h", hours / 24, hours % 24);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes % 60, s % 60);
  return fmt::format("{}:{:02}", minutes, s % 60);
}

std::string rate_text(double rate, double total, std::string_view unit) {
  if (rate <= 0) return {};
  const auto digits = [](double x) { return x >= 9.95 ? fmt::format("{:.0f}", x) : fmt::format("{:.1f}", x); };
  if (unit.empty()) return total > 0 ? digits(6000 * rate / total) + " %/min" : std::string();
  if (unit == "bytes") return format_bytes(static_cast<uint64_t>(rate)) + "/s";
  if (rate >= 1) return fmt::format("{} {}/s", digits(rate), unit);
  const std::string_view one = unit.ends_with('s') ? unit.substr(0, unit.size() - 1) : unit;
  return rate > 1.0 / 120 ? fmt::format("{} s/{}", digits(1 / rate), one)
                          : fmt::format("{} min/{}", digits(1 / (60 * rate)), one);
}

std::string progress_line(const Progress& p, size_t columns, const Look& look) {
  const std::string share = fmt::format(" {:3} %", static_cast<int>(100 * share_of(p))), eta = "  " + eta_text(p);
  const std::string stage = cut(shown(p.stage, look), columns - std::min(columns, share.size() + eta.size()));
  size_t used = width_of(stage) + share.size() + eta.size();
  if (used > columns) return cut(stage + share + eta, columns);
  size_t room = columns - used;
  const size_t bar_columns = columns >= 110 ? 30 : columns >= 70 ? 14 : 8;
  std::string line = stage;
  if (room > bar_columns) {
    line += " " + coloured(bar(share_of(p), bar_columns, look), Colour::kCyan, look);
    room -= bar_columns + 1;
  }
  line += share + eta;

  constexpr size_t kGap = 2, kLeastText = 8;
  std::string text = shown(p.text, look);
  if (!text.empty() && room >= kGap + std::min(width_of(text), kLeastText)) {
    text = cut(text, room - kGap);
    room -= kGap + width_of(text);
  } else {
    text.clear();
  }
  std::string memory = p.rss_bytes > 0 ? format_bytes(p.rss_bytes) : std::string();
  std::string rate = rate_text(p.rate, p.total, p.unit);
  for (std::string* part : {&memory, &rate}) {
    if (part->empty() || room < kGap + part->size()) {
      part->clear();
    } else {
      room -= kGap + part->size();
    }
  }
  for (const std::string& part : {rate, memory, text}) line += part.empty() ? "" : "  " + part;
  return line;
}

std::string plain_line(const Progress& p) {
  std::string line = fmt::format("{} {} %", p.stage, static_cast<int>(100 * share_of(p)));
  const bool done = p.done >= p.total;
  for (const std::string& part :
       {p.text, rate_text(p.rate, p.total, p.unit), done ? std::string() : eta_text(p), format_bytes(p.rss_bytes)}) {
    if (!part.empty()) line += "  " + part;
  }
  return line;
}

}  // namespace bw::cli
