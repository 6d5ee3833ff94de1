#include "report/html.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/html_escape.h"
#include "base/utf8.h"

namespace bw::report {
namespace {

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#5b6570;--line:#d5dae0;--paper:#fff;--card:#f6f8fa;--low:#e8f0fa;
--high:#0b4a8f;--mark:#c2410c;--bar:#7aa7d9;--dark:#0b4a8f;--even:#8a6d00}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ed;--soft:#9aa5b1;--line:#3a424c;--paper:#14181d;--card:#1c2229;
--low:#1d2a3a;--high:#8cc2ff;--mark:#ff9a5c;--bar:#41688f;--dark:#8cc2ff;--even:#e0c050}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:62rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0}
h2{font-size:1.15rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}
p,figcaption{margin:.4rem 0;color:var(--soft)}
figure{margin:.5rem 0}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.6rem;margin:1rem 0;padding:0}
.figures div{background:var(--card);border:1px solid var(--line);border-radius:.4rem;padding:.5rem .7rem}
.figures dt{color:var(--soft);font-size:.8rem}
.figures dd{margin:0;font-size:1.2rem;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{padding:.15rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child{text-align:left;font-weight:normal}
.text th,.text td{text-align:left;white-space:normal;vertical-align:top}
.text th:first-child{min-width:8rem}
thead th{font-weight:600!important;color:var(--soft)}
summary{cursor:pointer;color:var(--soft);font-size:.9rem}
code{font-size:.85rem}
ul{padding-left:1.2rem}
svg{display:block;max-width:100%;min-width:31rem;height:auto}
svg.map{max-width:none;min-width:0}
svg text{fill:var(--ink);font:11px system-ui,sans-serif}
svg .soft{fill:var(--soft)}
svg .grid{stroke:var(--line);stroke-width:1}
svg .none{fill:none;stroke:var(--line)}
svg polyline{fill:none;stroke:var(--dark);stroke-width:2}
svg polyline.this{stroke:var(--mark)}
svg .dot.line{fill:var(--dark);stroke:none}
svg .dot.uniform{fill:none;stroke:var(--even);stroke-width:2}
svg .dot.this{fill:var(--mark);stroke:none}
svg .bar{fill:var(--bar)}
svg .bar.dark{fill:var(--dark)}
@media print{body{max-width:none;font-size:11px}details::details-content{content-visibility:visible;display:block}h2{break-after:avoid}figure{break-inside:avoid}}
)";

// Between --low and --high. Where the shade is strong, the label must be light (dark in dark mode): --paper.
std::string shade_style(double shade) {
  return fmt::format("fill:color-mix(in srgb,var(--high) {:.0f}%,var(--low))", 100 * std::clamp(shade, 0.0, 1.0));
}

struct Axis {
  double low = 0, high = 1, from = 0, to = 1;
  double place(double value) const { return from + (to - from) * (value - low) / (high - low); }
};

// Steps of 1, 2 or 5 times a power of ten, at most about `most` of them.
double step_of(double range, double most) {
  const double raw = range / most, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text, std::string_view css = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>", x, y, anchor, css,
                     escaped(text));
}

std::string x_grid(const Axis& x, const Axis& y) {
  std::string out;
  const double step = step_of(x.high - x.low, 8);
  for (double at = std::ceil(x.low / step) * step; at <= x.high + 1e-9; at += step) {
    out += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>",
                       x.place(at), y.from, y.to);
    out += text_at(x.place(at), y.from + 15, "middle", fmt::format("{:g}", at), "soft");
  }
  return out;
}

std::string y_grid(const Axis& x, const Axis& y) {
  std::string out;
  for (double decade = std::floor(y.low); decade <= y.high; ++decade) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10.0, decade), at = std::log10(value);
      if (at < y.low - 1e-9 || at > y.high + 1e-9) continue;
      out += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>", x.from,
                         x.to, y.place(at));
      out += text_at(x.from - 6, y.place(at) + 4, "end", fmt::format("{:.3g}", value), "soft");
    }
  }
  return out;
}

std::string marks_of(const Series& series, const Axis& x, const Axis& y) {
  std::string out, path;
  for (const ChartPoint& p : series.points) {
    if (!(p.y > 0)) continue;
    const double px = x.place(p.x), py = y.place(std::log10(p.y));
    path += fmt::format("{:.1f},{:.1f} ", px, py);
    out += fmt::format("<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}</title></circle>",
                       series.css, px, py,
                       series.css == "this" ? 6
                       : series.joined      ? 2
                                            : 4,
                       escaped(p.hint));
  }
  if (series.joined) out = fmt::format("<polyline class=\"{}\" points=\"{}\"/>", series.css, path) + out;
  return out;
}

// Where the names of the series begin: in the upper right corner, or, where points are there, in the lower one.
double legend_top(const Chart& chart, const Axis& x, const Axis& y) {
  const double height = 16 * static_cast<double>(chart.series.size()) + 8, top = y.to + 14;
  const auto is_there = [&](const ChartPoint& p) {
    return p.y > 0 && x.place(p.x) > x.to - 170 && y.place(std::log10(p.y)) < y.to + height;
  };
  const auto reaches = [&](const Series& s) { return std::any_of(s.points.begin(), s.points.end(), is_there); };
  const bool taken = std::any_of(chart.series.begin(), chart.series.end(), reaches);
  return taken ? y.from - height + 14 : top;
}

// What the axes must hold: {x, y}, the y as logarithms.
std::pair<Axis, Axis> axes_of(const Chart& chart) {
  Axis x{INFINITY, -INFINITY, 60, 625}, y{INFINITY, -INFINITY, 300, 12};
  for (const Series& s : chart.series) {
    for (const ChartPoint& p : s.points) {
      if (!(p.y > 0)) continue;
      x.low = std::min(x.low, p.x), x.high = std::max(x.high, p.x);
      y.low = std::min(y.low, std::log10(p.y)), y.high = std::max(y.high, std::log10(p.y));
    }
  }
  if (!(x.low <= x.high)) return {Axis{0, 1, x.from, x.to}, Axis{-1, 0, y.from, y.to}};
  const double wider = std::max(0.1, 0.03 * (x.high - x.low)), higher = std::max(0.05, 0.05 * (y.high - y.low));
  return {Axis{x.low - wider, x.high + wider, x.from, x.to}, Axis{y.low - higher, y.high + higher, y.from, y.to}};
}

std::string svg_begin(double width, double height, std::string_view title, std::string_view css = "") {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"{3}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" aria-label=\"{2}\">",
      width, height, escaped(title), css);
}

}  // namespace

std::string escaped(std::string_view text) { return html_escaped(replace_invalid_utf8(text)); }

std::string to_html(const Table& table) {
  std::string out = table.is_text ? "<div class=\"wide\"><table class=\"text\"><thead><tr>"
                                  : "<div class=\"wide\"><table><thead><tr>";
  for (const std::string& column : table.columns) out += "<th scope=\"col\">" + column + "</th>";
  out += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      out += i == 0 ? "<th scope=\"row\">" + row[i] + "</th>" : "<td>" + row[i] + "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>";
}

std::string folded(std::string_view summary, const Table& table) {
  return fmt::format("<details><summary>{}</summary>{}</details>\n", escaped(summary), to_html(table));
}

std::string to_svg(const HeatMap& map) {
  constexpr double kWidth = 41, kHeight = 18, kLeft = 30, kTop = 20;
  std::string out = svg_begin(kLeft + kWidth * static_cast<double>(map.columns.size()) + 4,
                              kTop + kHeight * static_cast<double>(map.rows.size()) + 4, map.title, "map");
  for (size_t c = 0; c < map.columns.size(); ++c) {
    out += text_at(kLeft + kWidth * (static_cast<double>(c) + 0.5), kTop - 7, "middle", map.columns[c], "soft");
  }
  for (size_t r = 0; r < map.rows.size(); ++r) {
    const double y = kTop + kHeight * static_cast<double>(r);
    out += text_at(kLeft - 6, y + 13, "end", map.rows[r], "soft");
    for (size_t c = 0; c < map.columns.size(); ++c) {
      const double shade = map.shade[r][c];
      if (std::isnan(shade)) continue;
      const double x = kLeft + kWidth * static_cast<double>(c);
      out += fmt::format(
          "<g><title>{}</title><rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" "
          "style=\"{}\"/>",
          escaped(map.hints[r][c]), x, y, kWidth - 1, kHeight - 1, shade_style(shade));
      if (!map.labels[r][c].empty()) {
        out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\"{}>{}</text>", x + kWidth / 2, y + 13,
                           shade > 0.5 ? " style=\"fill:var(--paper)\"" : "", escaped(map.labels[r][c]));
      }
      out += "</g>";
    }
    out += "\n";
  }
  return out + "</svg>";
}

std::string to_svg(const Chart& chart) {
  const auto [x, y] = axes_of(chart);
  std::string out = svg_begin(640, 340, chart.title) + x_grid(x, y) + y_grid(x, y);
  for (const Series& series : chart.series) out += marks_of(series, x, y) + "\n";
  out += text_at((x.from + x.to) / 2, 332, "middle", chart.x_name, "soft");
  out += fmt::format(
      "<text transform=\"translate(12,{:.1f}) rotate(-90)\" text-anchor=\"middle\" class=\"soft\">{}</text>",
      (y.from + y.to) / 2, escaped(chart.y_name));
  double below = legend_top(chart, x, y);
  for (const Series& series : chart.series) {
    out += fmt::format("<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>", series.css, x.to - 150,
                       below - 4);
    out += text_at(x.to - 140, below, "start", series.name);
    below += 16;
  }
  return out + "</svg>";
}

std::string to_svg(std::string_view title, const std::vector<Bar>& bars) {
  constexpr double kHeight = 20, kLeft = 190, kWidth = 330;
  double most = 0;
  for (const Bar& bar : bars) most = std::max(most, bar.value);
  std::string out = svg_begin(640, kHeight * static_cast<double>(bars.size()) + 4, title);
  for (size_t i = 0; i < bars.size(); ++i) {
    const double y = kHeight * static_cast<double>(i), scale = most > 0 ? kWidth / most : 0;
    out += text_at(kLeft - 6, y + 14, "end", bars[i].name);
    const auto rect = [&](double value, const char* css) {
      return fmt::format("<rect class=\"{}\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{:.0f}\"/>", css,
                         kLeft, y + 2, value * scale, kHeight - 4);
    };
    out += rect(bars[i].value, "bar");
    if (bars[i].dark > 0) out += rect(bars[i].dark, "bar dark");
    out += text_at(kLeft + bars[i].value * scale + 5, y + 14, "start", bars[i].label, "soft") + "\n";
  }
  return out + "</svg>";
}

std::string page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\">\n<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}\n"
      "</body>\n</html>\n",
      escaped(title), kStyle, body);
}

}  // namespace bw::report
