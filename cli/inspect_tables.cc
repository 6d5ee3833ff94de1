#include "inspect_tables.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "bitwright/units.h"

namespace bw::cli {
namespace {

// What several parts come to.
struct Sum {
  size_t parts = 0;
  double weights = 0;
  uint64_t bytes = 0;
  double least = 0, most = 0;  // bits per weight of one part

  void add(const PartReport& p) {
    least = parts == 0 ? p.bpw : std::min(least, p.bpw);
    most = std::max(most, p.bpw);
    ++parts;
    weights += static_cast<double>(p.in) * static_cast<double>(p.out);
    bytes += p.bytes;
  }
  double bpw() const { return weights > 0 ? 8.0 * static_cast<double>(bytes) / weights : 0; }
};

// In the order in which they are first met.
std::vector<std::string> modules_of(const auto& parts, const auto& wanted) {
  std::vector<std::string> modules;
  for (const auto& p : parts) {
    if (wanted(p) && std::find(modules.begin(), modules.end(), p.module) == modules.end()) modules.push_back(p.module);
  }
  return modules;
}

size_t widest(const std::vector<std::string>& names, size_t least) {
  for (const std::string& name : names) least = std::max(least, name.size());
  return least;
}

std::string shape_of(const PartReport& p) {
  return p.out == 1 ? fmt::format("{}", p.in) : fmt::format("{} x {}", p.out, p.in);
}

bool is_linear_of_layer(const PartReport& p) { return p.layer && p.out > 1; }

struct Prices {
  uint64_t least_bytes = 0, most_bytes = 0;
  double smallest = 0, middle = 0, largest = 0;  // prices of these layouts
  size_t layouts = 0, parts = 0;

  void add(const MeasuredPart& p) {
    ++parts;
    layouts += p.layouts.size();
    if (p.layouts.empty()) return;
    least_bytes += p.layouts.front().bytes;
    most_bytes += p.layouts.back().bytes;
    smallest += p.layouts.front().price;
    middle += p.layouts[p.layouts.size() / 2].price;
    largest += p.layouts.back().price;
  }
};

void print_price_row(const std::string& name, size_t width, const Prices& s) {
  fmt::print("{:<{}}  {:>5}  {:>7}  {:>9}  {:>9}  {:>11.4g}  {:>11.4g}  {:>11.4g}\n", name, width, s.parts, s.layouts,
             format_bytes(s.least_bytes), format_bytes(s.most_bytes), s.smallest, s.middle, s.largest);
}

void print_price_head(const char* what, size_t width) {
  fmt::print("\n{:<{}}  {:>5}  {:>7}  {:>9}  {:>9}  {:>11}  {:>11}  {:>11}\n", what, width, "parts", "layouts", "least",
             "most", "price least", "middle", "most");
}

}  // namespace

void print_by_module(const std::vector<PartReport>& parts) {
  const std::vector<std::string> modules = modules_of(parts, [](const PartReport&) { return true; });
  const size_t width = widest(modules, 6);
  fmt::print("\n{:<{}}  {:>5}  {:>14}  {:>9}  {:>8}  {:>8}  {:>8}\n", "module", width, "parts", "shape", "bytes", "bpw",
             "least", "most");
  for (const std::string& module : modules) {
    Sum sum;
    std::string shape;
    for (const PartReport& p : parts) {
      if (p.module != module) continue;
      sum.add(p);
      if (shape.empty()) shape = shape_of(p);
      if (shape != shape_of(p)) shape = "several";
    }
    fmt::print("{:<{}}  {:>5}  {:>14}  {:>9}  {:>8.4f}  {:>8.4f}  {:>8.4f}\n", module, width, sum.parts, shape,
               format_bytes(sum.bytes), sum.bpw(), sum.least, sum.most);
  }
}

void print_by_layer(const std::vector<PartReport>& parts) {
  const std::vector<std::string> modules = modules_of(parts, is_linear_of_layer);
  if (modules.empty()) return;
  fmt::print("\n{:<5}", "layer");
  for (const std::string& module : modules) fmt::print("  {:>{}}", module, std::max<size_t>(6, module.size()));
  fmt::print("  {:>8}  {:>9}\n", "bpw", "bytes");
  std::map<size_t, std::map<std::string, Sum>> layers;
  for (const PartReport& p : parts) {
    if (is_linear_of_layer(p)) layers[*p.layer][p.module].add(p);
  }
  for (auto& [layer, sums] : layers) {
    fmt::print("{:<5}", layer);
    double weights = 0;
    uint64_t bytes = 0;
    for (const std::string& module : modules) {
      const Sum& sum = sums[module];
      weights += sum.weights;
      bytes += sum.bytes;
      fmt::print("  {:>{}}", sum.parts > 0 ? fmt::format("{:.3f}", sum.bpw()) : "-",
                 std::max<size_t>(6, module.size()));
    }
    fmt::print("  {:>8.4f}  {:>9}\n", 8.0 * static_cast<double>(bytes) / std::max(weights, 1.0), format_bytes(bytes));
  }
}

void print_each(const std::vector<PartReport>& parts) {
  size_t width = 4;
  for (const PartReport& p : parts) width = std::max(width, p.key.size());
  fmt::print("\n{:<{}}  {:>14}  {:>9}  {:>8}  layout\n", "part", width, "shape", "bytes", "bpw");
  for (const PartReport& p : parts) {
    fmt::print("{:<{}}  {:>14}  {:>9}  {:>8.4f}  {}\n", p.key, width, shape_of(p), format_bytes(p.bytes), p.bpw,
               p.layout);
  }
}

void print_prices(const MeasurementReport& r) {
  const std::vector<std::string> modules = modules_of(r.parts, [](const MeasuredPart&) { return true; });
  const size_t width = widest(modules, 6);
  print_price_head("module", width);
  for (const std::string& module : modules) {
    Prices sum;
    for (const MeasuredPart& p : r.parts) {
      if (p.module == module) sum.add(p);
    }
    print_price_row(module, width, sum);
  }
  std::map<size_t, Prices> layers;
  for (const MeasuredPart& p : r.parts) {
    if (p.layer) layers[*p.layer].add(p);
  }
  if (!layers.empty()) print_price_head("layer", width);
  for (const auto& [layer, sum] : layers) print_price_row(std::to_string(layer), width, sum);
}

}  // namespace bw::cli
