// The page of one report, and of several beside each other.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "bitwright/units.h"
#include "report/html.h"
#include "report/report.h"

namespace bw::report {
namespace {

std::string section(std::string_view heading, std::string_view body) {
  return fmt::format("<section><h2>{}</h2>\n{}</section>\n", escaped(heading), body);
}

std::string figure(std::string_view svg, std::string_view caption) {
  return fmt::format("<figure><div class=\"wide\">{}</div><figcaption>{}</figcaption></figure>\n", svg,
                     escaped(caption));
}

std::string nats(double x) { return std::isfinite(x) ? fmt::format("{:.4g}", x) : "none"; }
std::string nats(const Estimate& e) { return fmt::format("{:.4f} ± {:.4f}", e.value, e.error); }
std::string count(uint64_t n) { return fmt::format("{}", n); }

std::string measured_on(const Report& r) {
  return r.held_out ? "of the calibration text that were held out of calibration; other kinds of text differ"
                    : "which the model has been fitted to: on other text its divergence is higher";
}

std::string key_figures(const Report& r) {
  const std::pair<const char*, std::string> figures[] = {
      {"Bits per weight, linears", fmt::format("{:.4f}", r.bpw_linears)},
      {"Bits per weight, head", fmt::format("{:.3f}", r.bpw_head)},
      {"Size", format_bytes(r.bytes)},
      {"Of the original", fmt::format("{:.1f} %", 100.0 * static_cast<double>(r.bytes) /
                                                      static_cast<double>(std::max<uint64_t>(1, r.original_bytes)))},
      {"KLD predicted, nats per token", nats(r.predicted_kld)},
      {"KLD measured", nats(r.measured.kld)},
      {"Same most likely token", fmt::format("{:.1f} %", 100 * r.measured.top1.value)},
      {"Perplexity (original)",
       fmt::format("{:.3f} ({:.3f})", r.measured.perplexity.value, r.measured.reference_perplexity.value)},
  };
  std::string out = "<dl class=\"figures\">";
  for (const auto& [name, value] : figures) out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, value);
  return out +
         fmt::format(
             "</dl>\n<p>What is measured is of {} tokens {}. <code>bitwright eval</code> measures on any text.</p>\n",
             r.measured.tokens, measured_on(r));
}

// "up" of "up_proj", so that columns stay narrow.
std::string short_name(std::string module) {
  if (const size_t end = module.rfind("_proj"); end != std::string::npos) module.erase(end);
  return module.size() > 6 ? module.substr(0, 6) : module;
}

// One row for each layer, one column for each of its modules; the head has no place in it.
HeatMap map_of(const Report& r, std::string title) {
  HeatMap map;
  map.title = std::move(title);
  for (size_t layer = 0; layer < r.layers; ++layer) map.rows.push_back(count(layer));
  for (const Linear& l : r.linears) {
    const std::string name = short_name(l.module);
    if (l.layer < r.layers && std::find(map.columns.begin(), map.columns.end(), name) == map.columns.end()) {
      map.columns.push_back(name);
    }
  }
  map.shade.assign(r.layers, std::vector<double>(map.columns.size(), std::nan("")));
  map.labels.assign(r.layers, std::vector<std::string>(map.columns.size()));
  map.hints = map.labels;
  return map;
}

// place(linear, shade, label, hint) of every linear of the decoder.
template <typename Place>
void for_each_cell(const Report& r, HeatMap& map, const Place& place) {
  for (const Linear& l : r.linears) {
    if (l.layer >= r.layers) continue;
    const auto column = std::find(map.columns.begin(), map.columns.end(), short_name(l.module)) - map.columns.begin();
    const auto c = static_cast<size_t>(column);
    place(l, map.shade[l.layer][c], map.labels[l.layer][c], map.hints[l.layer][c]);
  }
}

Table linear_table(const Report& r) {
  Table table{{"linear", "shape", "bits per weight", "price, nats", "layout"}, {}};
  for (const Linear& l : r.linears) {
    table.rows.push_back({escaped(l.key), fmt::format("{} → {}", l.in, l.out), fmt::format("{:.4f}", l.bpw),
                          l.price > 0 ? fmt::format("{:.3e}", l.price) : "", escaped(l.layout)});
  }
  return table;
}

std::string bits_section(const Report& r) {
  HeatMap map = map_of(r, "bits per weight of every linear");
  double low = INFINITY, high = 0;
  for (const Linear& l : r.linears) low = std::min(low, l.bpw), high = std::max(high, l.bpw);
  for_each_cell(r, map, [&](const Linear& l, double& shade, std::string& label, std::string& hint) {
    shade = high > low ? (l.bpw - low) / (high - low) : 0.5;
    label = fmt::format("{:.2f}", l.bpw);
    hint = fmt::format("{}: {:.4f} bits per weight, {}", l.key, l.bpw, l.layout);
  });
  return section("Where the bits are",
                 figure(to_svg(map),
                        "Bits per weight, scales and all else included; a row for each layer. The head is "
                        "in the table.") +
                     folded("Every linear", linear_table(r)));
}

// Sums of prices and bits by layer.
struct Sums {
  double price = 0, bits = 0, weights = 0;
};

Table layer_table(const Report& r, const std::vector<Sums>& layers) {
  Table table{{"layer", "bits per weight", "price, nats", "of all"}, {}};
  for (size_t i = 0; i < layers.size(); ++i) {
    table.rows.push_back({i < r.layers ? count(i) : "head", fmt::format("{:.4f}", layers[i].bits / layers[i].weights),
                          fmt::format("{:.3e}", layers[i].price),
                          r.predicted_kld > 0 ? fmt::format("{:.1f} %", 100 * layers[i].price / r.predicted_kld) : ""});
  }
  return table;
}

std::string price_section(const Report& r) {
  HeatMap map = map_of(r, "price of every linear");
  double low = INFINITY, high = 0;
  std::vector<Sums> layers(r.layers + 1);
  for (const Linear& l : r.linears) {
    if (l.price > 0) low = std::min(low, l.price), high = std::max(high, l.price);
    Sums& sums = layers[std::min(l.layer, r.layers)];
    const double weights = static_cast<double>(l.in) * static_cast<double>(l.out);
    sums.price += l.price, sums.bits += l.bpw * weights, sums.weights += weights;
  }
  for_each_cell(r, map, [&](const Linear& l, double& shade, std::string& label, std::string& hint) {
    shade = l.price > 0 && high > low ? std::log(l.price / low) / std::log(high / low) : 0;
    label = l.price > 0 ? fmt::format("{:.2g}", 1e3 * l.price) : "";
    hint = fmt::format("{}: {:.3e} nats per token", l.key, l.price);
  });
  std::erase_if(layers, [](const Sums& s) { return s.weights == 0; });
  return section("What each linear costs",
                 figure(to_svg(map),
                        "Price in thousandths of a nat per token: what storing the linear like this adds "
                        "to the predicted KLD. Shades go by its logarithm.") +
                     folded("By layer", layer_table(r, layers)));
}

std::string this_point(const Report& r) {
  return fmt::format("this model: {:.4f} bits per weight, {} predicted", r.bpw_linears, nats(r.predicted_kld));
}

// The frontier's points nearest to what this model has, a quarter of a bit fewer and more.
std::string quarter_text(const Report& r) {
  std::string out;
  for (const double step : {-0.25, 0.25}) {
    const double wanted = r.bpw_linears + step;
    const auto near = std::min_element(r.frontier.begin(), r.frontier.end(), [&](const auto& a, const auto& b) {
      return std::abs(a.bpw - wanted) < std::abs(b.bpw - wanted);
    });
    if (near == r.frontier.end() || std::abs(near->bpw - wanted) > 0.05 || !(r.predicted_kld > 0)) continue;
    out += fmt::format("{} bits per weight: predicted KLD {} ({:+.0f} %). ", fmt::format("{:+.2f}", step),
                       nats(near->kld), 100 * (near->kld / r.predicted_kld - 1));
  }
  return out;
}

std::vector<ChartPoint> chart_points(const std::vector<PlanPoint>& points) {
  std::vector<ChartPoint> out;
  for (const PlanPoint& p : points) {
    out.push_back({p.bpw, p.kld,
                   fmt::format("{}{:.3f} bits per weight, {} predicted", p.name.empty() ? "" : p.name + ": ", p.bpw,
                               nats(p.kld))});
  }
  return out;
}

Table plan_table(const Report& r) {
  Table table{{"plan", "bits per weight", "predicted KLD"}, {}};
  table.rows.push_back({"this model", fmt::format("{:.4f}", r.bpw_linears), nats(r.predicted_kld)});
  for (const PlanPoint& p : r.frontier) table.rows.push_back({"best", fmt::format("{:.4f}", p.bpw), nats(p.kld)});
  for (const PlanPoint& p : r.uniform) {
    table.rows.push_back({escaped(p.name), fmt::format("{:.4f}", p.bpw), nats(p.kld)});
  }
  return table;
}

std::string frontier_section(const Report& r) {
  Chart chart{
      "predicted KLD by bits per weight", "bits per weight of the linears", "predicted KLD, nats per token", {}};
  chart.series.push_back({"best plans", "line", chart_points(r.frontier), true});
  chart.series.push_back({"uniform plans", "uniform", chart_points(r.uniform), false});
  chart.series.push_back({"this model", "this", {{r.bpw_linears, r.predicted_kld, this_point(r)}}, false});
  const std::string quarter = quarter_text(r);
  return section("What more or fewer bits would bring",
                 (quarter.empty() ? "" : "<p>" + escaped(quarter) + "</p>\n") +
                     figure(to_svg(chart),
                            "Predicted KLD of the best plan at each size, and of plans that give every "
                            "linear the same width.") +
                     folded("All plans", plan_table(r)));
}

std::string trace_name(const TracePoint& p) {
  return p.head ? "all layers and the head" : fmt::format("{} layers", p.layers);
}

std::string trace_section(const Report& r) {
  if (r.trace.empty()) return {};
  Series predicted{"predicted", "line", {}, true}, measured{"measured", "this", {}, true};
  Table table{{"quantized", "KLD predicted", "measured"}, {}};
  for (const TracePoint& p : r.trace) {
    table.rows.push_back({trace_name(p), nats(p.predicted), nats(p.measured)});
    const double x = static_cast<double>(p.layers) + (p.head ? 1 : 0);
    predicted.points.push_back({x, p.predicted, fmt::format("{}: {} predicted", trace_name(p), nats(p.predicted))});
    measured.points.push_back({x, p.measured.value, fmt::format("{}: {} measured", trace_name(p), nats(p.measured))});
  }
  Chart chart{"KLD by the number of quantized layers",
              "first layers that are quantized; last: the head, too",
              "KLD, nats per token",
              {}};
  chart.series = {std::move(predicted), std::move(measured)};
  return section("Where the KLD comes from",
                 figure(to_svg(chart),
                        "What a model would be worth of which only the first layers are quantized: the sum of their "
                        "prices, and as measured on one of the rows that were held out.") +
                     folded("Numbers", table));
}

Table percentile_table(const Report& r) {
  const EvaluateResult& f = r.measured;
  return {{"KLD, nats per token", "measured"},
          {{"mean", nats(f.kld)},
           {"predicted mean", nats(r.predicted_kld)},
           {"median", nats(f.kld_median)},
           {"90 % of tokens are below", nats(f.kld_p90)},
           {"99 %", nats(f.kld_p99)},
           {"99.9 %", nats(f.kld_p999)},
           {"most", nats(f.kld_max)}}};
}

std::string kld_section(const Report& r) {
  const EvaluateResult& f = r.measured;
  const std::pair<const char*, double> values[] = {
      {"median", f.kld_median}, {"mean", f.kld.value}, {"predicted", r.predicted_kld},
      {"90 %", f.kld_p90},      {"99 %", f.kld_p99},   {"99.9 %", f.kld_p999},
      {"most", f.kld_max}};
  std::vector<Bar> bars;
  for (const auto& [name, value] : values) {
    // From a tenth of a thousandth of a nat on, in decades.
    const double length = value > 0 ? std::max(0.0, std::log10(value) + 4) : 0;
    bars.push_back({name, nats(value), length, 0});
  }
  return section("KLD by token", figure(to_svg("percentiles of the KLD of a token", bars),
                                        fmt::format("Of {} tokens {}; and as predicted. Bars go by the logarithm.",
                                                    f.tokens, measured_on(r))) +
                                     folded("Numbers", percentile_table(r)));
}

std::string time_section(const Report& r) {
  std::vector<StageTime> stages = r.stages;
  std::stable_sort(stages.begin(), stages.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  std::erase_if(stages, [](const StageTime& s) { return s.seconds < 0.005; });
  std::vector<Bar> bars;
  for (const StageTime& s : stages)
    bars.push_back({s.stage, fmt::format("{:.2f} s", s.seconds), s.seconds, s.wait_seconds});
  Table table{{"stage", "seconds", "in products", "GFLOP/s", "waits", "waiting, s", "to device", "from device"}, {}};
  for (const StageTime& s : stages) {
    const bool products = s.product_seconds > 0;
    table.rows.push_back({escaped(s.stage), fmt::format("{:.2f}", s.seconds),
                          products ? fmt::format("{:.0f} %", 100 * s.product_seconds / s.seconds) : "",
                          products ? fmt::format("{:.0f}", 1e-9 * s.product_flops / s.product_seconds) : "",
                          count(s.waits), fmt::format("{:.2f}", s.wait_seconds), format_bytes(s.upload_bytes),
                          format_bytes(s.download_bytes)});
  }
  return section(
      "Where the time went",
      fmt::format("<p>{:.1f} s in this run, at most {} of memory.</p>\n", r.seconds, format_bytes(r.peak_memory)) +
          figure(to_svg("seconds by stage", bars), "Seconds by stage; dark: waiting for the device.") +
          folded("All stages", table));
}

std::string calibration_section(const Report& r) {
  std::string body = fmt::format("<p>{} rows of {} tokens: {}</p>\n", r.rows, r.length, escaped(r.calibration));
  if (!r.sources.empty()) {
    Table table{{"source", "files", "texts", "tokens there", "rows", "tokens used", "share"}, {}};
    std::vector<Bar> bars;
    for (const CalibrationSource& s : r.sources) {
      table.rows.push_back({escaped(s.name), count(s.files), count(s.texts), count(s.tokens), count(s.rows),
                            count(s.used_tokens), fmt::format("{:.1f} %", 100 * s.share)});
      bars.push_back({s.name.size() > 28 ? s.name.substr(0, 25) + "..." : s.name,
                      fmt::format("{:.1f} %", 100 * s.share), s.share, 0});
    }
    body += figure(to_svg("share of each source", bars), "Share of the tokens of all rows.") + folded("Sources", table);
  }
  return section("Calibration", body);
}

std::string warning_section(const Report& r) {
  if (r.warnings.empty()) return section("Warnings", "<p>None.</p>\n");
  std::string list = "<ul>";
  for (const std::string& warning : r.warnings) list += "<li>" + escaped(warning) + "</li>\n";
  return section("Warnings", list + "</ul>\n");
}

std::string making_section(const Report& r) {
  const Table table{{"made with", ""},
                    {{"Bitwright", escaped(r.version)},
                     {"command", r.command.empty() ? "" : "<code>" + escaped(r.command) + "</code>"},
                     {"model", escaped(r.model)},
                     {"architecture", fmt::format("{}, {} layers, hidden {}, vocabulary {}, {:.1f}M parameters",
                                                  escaped(r.architecture), r.layers, r.hidden, r.vocabulary,
                                                  static_cast<double>(r.parameters) / 1e6)},
                     {"target", r.bpw_target > 0 ? fmt::format("{} bits per weight", r.bpw_target) : "a size"},
                     {"effort", escaped(r.effort)},
                     {"device", fmt::format("{}, {}, {} threads", escaped(r.device), escaped(r.arithmetic), r.threads)},
                     {"seed", count(r.seed)},
                     {"fingerprint of the model", "<code>" + escaped(r.fingerprint) + "</code>"},
                     {"fingerprint of the text", "<code>" + escaped(r.text_fingerprint) + "</code>"}},
                    true};
  return section("How it was made", to_html(table));
}

std::string title_of(const Report& r) { return fmt::format("{} at {:.2f} bits per weight", r.model, r.bpw_linears); }

}  // namespace

std::string html_page(const Report& r) {
  return page(title_of(r), fmt::format("<h1>{}</h1>\n", escaped(title_of(r))) + key_figures(r) + bits_section(r) +
                               price_section(r) + trace_section(r) + frontier_section(r) + kld_section(r) +
                               calibration_section(r) + time_section(r) + warning_section(r) + making_section(r));
}

std::string html_comparison(std::span<const Report> reports) {
  Chart chart{"KLD by bits per weight", "bits per weight of the linears", "KLD, nats per token", {}};
  Series predicted{"predicted", "uniform", {}, false}, measured{"measured", "this", {}, false};
  Table table{{"model", "bits per weight", "head", "size", "KLD predicted", "measured", "same top token", "effort",
               "rows", "seconds"},
              {}};
  for (const Report& r : reports) {
    predicted.points.push_back({r.bpw_linears, r.predicted_kld, title_of(r) + ", predicted"});
    measured.points.push_back({r.bpw_linears, r.measured.kld.value, title_of(r) + ", measured"});
    table.rows.push_back({escaped(r.model), fmt::format("{:.4f}", r.bpw_linears), fmt::format("{:.3f}", r.bpw_head),
                          format_bytes(r.bytes), nats(r.predicted_kld), nats(r.measured.kld),
                          fmt::format("{:.1f} %", 100 * r.measured.top1.value), escaped(r.effort),
                          fmt::format("{} × {}", r.rows, r.length), fmt::format("{:.0f}", r.seconds)});
  }
  chart.series = {std::move(predicted), std::move(measured)};
  const std::string title = fmt::format("{} quantized models", reports.size());
  return page(title, fmt::format("<h1>{}</h1>\n", title) + to_html(table) +
                         figure(to_svg(chart), "KLD of each model, predicted and measured."));
}

}  // namespace bw::report
