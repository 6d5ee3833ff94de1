// Pieces of an HTML page: escaped text, tables, inline SVG. Colours are those of the page's style (page_style).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bw::report {

// Text as it stands between tags and in attributes; bytes that are no UTF-8 become U+FFFD.
std::string escaped(std::string_view text);

// cells are HTML; the first column is a heading of its row, the others are numbers, set flush right.
struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  bool is_text = false;  // cells are words: set flush left, and broken where they are too long
};
std::string to_html(const Table& table);
// Folded away under `summary` until it is opened; print shows it.
std::string folded(std::string_view summary, const Table& table);

// A value for each row and column as a shade between `low` and `high`; NaN: no cell there.
struct HeatMap {
  std::string title;  // for those who hear the page
  std::vector<std::string> rows, columns;
  std::vector<std::vector<double>> shade;        // 0 to 1
  std::vector<std::vector<std::string>> labels;  // in the cell; may be empty
  std::vector<std::vector<std::string>> hints;   // in full
};
std::string to_svg(const HeatMap& map);

struct ChartPoint {
  double x = 0, y = 0;
  std::string hint;
};
struct Series {
  std::string name, css;  // the class of its marks: "line", "uniform", "this"
  std::vector<ChartPoint> points;
  bool joined = false;
};
// x to the right, log10 of y upwards; points whose y is not above 0 are left out.
struct Chart {
  std::string title, x_name, y_name;
  std::vector<Series> series;
};
std::string to_svg(const Chart& chart);

// Bars to the right, the longest as wide as the picture.
struct Bar {
  std::string name, label;
  double value = 0, dark = 0;  // dark: the part of the value that is set off
};
std::string to_svg(std::string_view title, const std::vector<Bar>& bars);

// A whole page. body: HTML.
std::string page(std::string_view title, std::string_view body);

}  // namespace bw::report
