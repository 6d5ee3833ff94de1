// What a terminal can show, and lines that fit it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bw::cli {

// How to write to a stream.
struct Look {
  bool live = false;    // a terminal whose line can be written over
  bool colour = false;  // live, and NO_COLOR is not set
  bool utf8 = false;    // the locale's characters are UTF-8
};
Look look_of(int fd);

// Columns of the terminal now (its size can change); 80 where that cannot be told.
size_t columns_of(int fd);

enum class Colour { kRed, kGreen, kYellow, kCyan };
// The text in that colour, where the look has colours.
std::string coloured(std::string_view text, Colour colour, const Look& look);

// Columns that a text takes: characters of Asian scripts take two, combining ones none.
size_t width_of(std::string_view text);
// The text with what is no printable character (control characters, bad UTF-8) as '?'. In a terminal without UTF-8, all
// but ASCII is.
std::string shown(std::string_view text, const Look& look);
// As much of a shown text as fits, whole characters, ended by dots where something was cut off.
std::string cut(std::string_view text, size_t columns);

// "0:07", "12:05", "3:04:05", "4 d 5 h".
std::string duration(double seconds);
// "3.4 layers/s", "2.1 s/layer", "12 min/layer", "83.2 MB/s", and where there is no unit "2.3 %/min" of `total`; "" if
// the rate is not known (0).
std::string rate_text(double rate, double total, std::string_view unit);

// What a line of progress says.
struct Progress {
  std::string stage, text, unit;
  double done = 0, total = 0;
  double rate = 0;            // a second
  std::optional<double> eta;  // seconds
  uint64_t rss_bytes = 0;
};
// In no more than `columns` columns: first stage, share and ETA, then as there is room a bar, what is being worked on,
// memory, rate.
std::string progress_line(const Progress& progress, size_t columns, const Look& look);
// The same as a plain line that stays.
std::string plain_line(const Progress& progress);

}  // namespace bw::cli
