#include "pipeline/output_plan.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "allocate/allocate.h"
#include "base/check.h"
#include "bitwright/error.h"
#include "bitwright/units.h"
#include "codec/exl2.h"
#include "nn/decoder.h"
#include "pipeline/output_config.h"

namespace bw::pipeline {
namespace {

constexpr int kPlainHead = 16;  // head_bits that leave it in f16
// Bytes by which config.json may grow from what shapes alone tell: names and numbers of the calibration.
constexpr uint64_t kMetadataReserve = 4096;

bool storable(const LinearMeasurement& linear) { return !linear.candidates.empty(); }

uint64_t plain_bits_of(uint64_t in, uint64_t out, uint64_t bias_bits) { return 16 * in * out + bias_bits; }

uint64_t bits_of(const codec::Candidate* head) { return head ? head->bits : 0; }

// The allocation's items, the measured linears they stand for, and the uniform plans.
struct Problem {
  std::vector<const LinearMeasurement*> linears;
  std::vector<std::vector<allocate::Choice>> items;
  std::vector<std::vector<size_t>> uniform;
  std::vector<const codec::Candidate*> heads;  // that may be chosen, the smallest first; a null alone: it stays in f16

  uint64_t smallest() const { return allocate::smallest_bits(items) + bits_of(heads.front()); }
  uint64_t largest() const { return allocate::largest_bits(items) + bits_of(heads.back()); }
};

// A layout for every linear of a problem, and for the head.
struct Choices {
  allocate::Plan linears;
  const codec::Candidate* head = nullptr;

  double price() const { return linears.price + (head ? head->price : 0); }
};

// The head at a width; null for one that it cannot have.
const codec::Candidate* head_of(const Measurement& m, int bits) {
  for (const codec::Candidate& c : m.head.candidates) {
    if (c.layout.runs.front().bits == bits) return &c;
  }
  return nullptr;
}

Problem problem_of(const Measurement& m, std::optional<int> head_bits) {
  Problem p;
  if (!head_bits) {
    for (const codec::Candidate& c : m.head.candidates) p.heads.push_back(&c);
  }
  if (p.heads.empty()) p.heads.push_back(head_bits ? head_of(m, *head_bits) : nullptr);
  for (const LinearMeasurement& linear : m.linears) {
    if (!storable(linear)) continue;
    p.linears.push_back(&linear);
    std::vector<allocate::Choice> choices;
    for (const codec::Candidate& c : linear.candidates) choices.push_back({c.bits, c.price});
    p.items.push_back(std::move(choices));
  }
  for (const int bits : quant::kBitWidths) {
    for (const uint32_t group_size : quant::kGroupSizes) {
      std::vector<size_t> plan;
      for (const LinearMeasurement* linear : p.linears) {
        const quant::Layout wanted = quant::uniform_layout(linear->in, bits, group_size);
        const auto at = std::find_if(linear->candidates.begin(), linear->candidates.end(),
                                     [&](const codec::Candidate& c) { return c.layout == wanted; });
        if (at == linear->candidates.end()) break;
        plan.push_back(static_cast<size_t>(at - linear->candidates.begin()));
      }
      if (plan.size() == p.linears.size()) p.uniform.push_back(std::move(plan));
    }
  }
  return p;
}

// The least price within `budget` bits, which are at least p.smallest(). The head is no item of the allocation, whose
// steps should be small beside the budget: it is tried at each width.
Choices choose(const Problem& p, uint64_t budget) {
  const uint64_t least = allocate::smallest_bits(p.items);
  std::optional<Choices> best;
  for (const codec::Candidate* head : p.heads) {
    if (least + bits_of(head) > budget) break;
    Choices c{allocate::allocate(p.items, budget - bits_of(head), p.uniform), head};
    if (!best || c.price() < best->price()) best = std::move(c);
  }
  BW_CHECK(best.has_value());
  return *std::move(best);
}

// All tensors of the output in the order of their names' layers, so that a loader reads front to back.
std::vector<OutputTensor> output_tensors(const model::ModelDir& dir,
                                         const std::map<std::string, quant::Layout>& layouts) {
  std::map<std::string, uint32_t> columns;  // of the quantized linears, by key
  for (size_t layer = 0; layer < dir.config().n_layers; ++layer) {
    for (size_t k = 0; k < model::kLinearsPerLayer; ++k) {
      const model::LinearInfo info = dir.linear(layer, static_cast<model::LinearKind>(k));
      columns[dir.reference_name(info.key)] = static_cast<uint32_t>(info.out);
    }
  }
  const std::string head = dir.reference_name(dir.head().key);
  columns[head] = static_cast<uint32_t>(dir.head().out);
  std::erase_if(columns, [&](const auto& linear) { return !layouts.contains(linear.first); });

  std::vector<OutputTensor> tensors;
  const auto add_linear = [&](const std::string& key) {
    for (io::TensorPlan& plan : codec::tensor_plans(key, layouts.at(key), columns.at(key))) {
      tensors.push_back({std::move(plan), {}});
    }
    columns.erase(key);
  };
  constexpr std::string_view kWeight = ".weight";
  for (const io::TensorEntry* entry : dir.tensors().entries()) {
    if (!dir.uses(entry->name)) continue;
    const std::string name = dir.reference_name(entry->name);
    const std::string key = name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : std::string();
    if (columns.contains(key)) {
      add_linear(key);
    } else if (key != head || !dir.head_is_embedding()) {  // a head equal to the embedding is not stored twice
      tensors.push_back({{name, io::TensorType::kF16, entry->shape}, entry->name});
    }
  }
  if (columns.contains(head)) add_linear(head);  // of a model that stores none
  return tensors;
}

uint64_t shard_size(const std::vector<OutputTensor>& tensors) {
  std::vector<io::TensorPlan> plans;
  for (const OutputTensor& t : tensors) plans.push_back(t.plan);
  return io::safetensors_size(plans);
}

// To three decimals.
double round_up(double x) { return std::ceil(x * 1000) / 1000; }
double round_down(double x) { return std::floor(x * 1000) / 1000; }

// Index of the smallest or largest choice.
size_t extreme_choice(const std::vector<allocate::Choice>& choices, bool largest) {
  const auto less = [](const allocate::Choice& a, const allocate::Choice& b) { return a.bits < b.bits; };
  const auto at = largest ? std::max_element(choices.begin(), choices.end(), less)
                          : std::min_element(choices.begin(), choices.end(), less);
  return static_cast<size_t>(at - choices.begin());
}

// Fills shards up to `limit` bytes of data; a tensor larger than that gets a shard of its own.
std::vector<OutputShard> split_shards(std::vector<OutputTensor> tensors, uint64_t limit) {
  std::vector<OutputShard> shards(1);
  uint64_t used = 0;
  for (OutputTensor& t : tensors) {
    const uint64_t bytes = t.plan.bytes();
    if (!shards.back().tensors.empty() && limit > 0 && used + bytes > limit) {
      shards.emplace_back();
      used = 0;
    }
    used += bytes;
    shards.back().tensors.push_back(std::move(t));
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = shards.size() == 1 ? "model.safetensors"
                                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    shards[i].bytes = shard_size(shards[i].tensors);
  }
  return shards;
}

OutputPlan make_plan(const model::ModelDir& dir, const Measurement& m, const Problem& problem, const Choices& choices,
                     const OutputOptions& options) {
  OutputPlan plan;
  plan.predicted_kld = choices.price();
  for (size_t i = 0; i < problem.linears.size(); ++i) {
    plan.layouts[problem.linears[i]->key] = problem.linears[i]->candidates[choices.linears.chosen[i]].layout;
  }
  const Reach reach = reach_of(m);
  plan.bpw_linears = static_cast<double>(choices.linears.bits + reach.plain_bits) / static_cast<double>(reach.weights);
  plan.bpw_head = 16;
  int head_bits = kPlainHead;
  if (const codec::Candidate* head = choices.head) {
    plan.layouts[m.head.key] = head->layout;
    plan.bpw_head =
        static_cast<double>(head->bits) / (static_cast<double>(m.head.in) * static_cast<double>(m.head.out));
    head_bits = head->layout.runs.front().bits;
  }
  plan.shards = split_shards(output_tensors(dir, plan.layouts), options.shard_bytes);
  plan.config = output_config(dir, m, options.label_bpw > 0 ? options.label_bpw : plan.bpw_linears, head_bits);
  plan.side_files = side_files(dir.path());
  plan.bytes = plan.config.size();
  for (const OutputShard& shard : plan.shards) plan.bytes += shard.bytes;
  for (const auto& file : plan.side_files) plan.bytes += std::filesystem::file_size(file);
  return plan;
}

}  // namespace

Reach reach_of(const Measurement& m) {
  Reach r;
  const Problem p = problem_of(m, kPlainHead);
  for (const LinearMeasurement& linear : m.linears) {
    r.weights += uint64_t{linear.in} * linear.out;
    if (!storable(linear)) r.plain_bits += plain_bits_of(linear.in, linear.out, linear.bias_bits);
  }
  r.smallest = p.smallest() + r.plain_bits;
  r.largest = p.largest() + r.plain_bits;
  return r;
}

void check_bpw(double bpw, const Reach& reach) {
  if (bpw >= reach.smallest_bpw() && bpw <= reach.largest_bpw()) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("--bpw {}: this model can be stored at {:.3f} to {:.3f} bits per weight", bpw,
                          round_up(reach.smallest_bpw()), round_down(reach.largest_bpw())),
              "choose a value in this range");
}

void check_size(const model::ModelDir& dir, uint64_t bytes, const OutputOptions& options) {
  const Measurement shapes = shape_measurement(dir);
  const Problem p = problem_of(shapes, options.head_bits);
  const auto bytes_of = [&](bool largest) {
    std::vector<size_t> chosen;
    for (const auto& choices : p.items) chosen.push_back(extreme_choice(choices, largest));
    const codec::Candidate* head = largest ? p.heads.back() : p.heads.front();
    return make_plan(dir, shapes, p, {{std::move(chosen), 0, 0}, head}, options).bytes;
  };
  const uint64_t least = bytes_of(false) + kMetadataReserve;
  if (bytes >= least) return;
  const std::string head = options.head_bits ? fmt::format(" with {} bits for the head", *options.head_bits) : "";
  throw Error(ErrorCode::kUsage,
              fmt::format("--size {}: this model takes {} to {} bytes ({} to {}){}", bytes, least, bytes_of(true),
                          format_bytes(least), format_bytes(bytes_of(true)), head),
              options.head_bits ? "ask for more, or lower --head-bits" : "ask for more");
}

OutputPlan plan_for_bpw(const model::ModelDir& dir, const Measurement& m, double bpw, OutputOptions options) {
  const Reach reach = reach_of(m);
  check_bpw(bpw, reach);
  const Problem p = problem_of(m, options.head_bits);
  const auto bits = static_cast<uint64_t>(std::floor(bpw * static_cast<double>(reach.weights)));
  const uint64_t linears = std::max(bits, reach.smallest) - reach.plain_bits;
  const uint64_t head = bits_of(head_of(m, options.head_bits.value_or(kDefaultHeadBits)));
  if (options.head_bits) options.label_bpw = bpw;
  return make_plan(dir, m, p, choose(p, linears + head), options);
}

OutputPlan plan_for_size(const model::ModelDir& dir, const Measurement& m, uint64_t bytes, OutputOptions options) {
  const Problem p = problem_of(m, options.head_bits);
  const uint64_t least = p.smallest(), most = p.largest();
  const OutputPlan smallest = make_plan(dir, m, p, choose(p, least), options);
  check_size(dir, bytes, options);
  uint64_t budget = std::min(most, least + 8 * (bytes - std::min(bytes, smallest.bytes)));
  while (true) {
    OutputPlan plan = make_plan(dir, m, p, choose(p, budget), options);
    if (plan.bytes <= bytes) return plan;
    if (budget == least) {
      throw Error(ErrorCode::kUsage, fmt::format("--size {}: the smallest plan takes {} bytes", bytes, plan.bytes),
                  "ask for more");
    }
    // Headers grow by a few digits as tensors grow: take that off the budget.
    budget -= std::min(budget - least, std::max<uint64_t>(8, 8 * (plan.bytes - bytes)));
  }
}

namespace {

// Of what the plan gives the head.
double head_price(const Measurement& m, const OutputPlan& plan) {
  const auto chosen = plan.layouts.find(m.head.key);
  if (chosen == plan.layouts.end()) return 0;
  for (const codec::Candidate& c : m.head.candidates) {
    if (c.layout == chosen->second) return c.price;
  }
  return 0;
}

}  // namespace

std::vector<PlanPoint> frontier_of(const Measurement& m, const OutputPlan& plan) {
  constexpr int kSteps = 20;
  constexpr double kQuarter = 0.25;
  const Problem p = problem_of(m, kPlainHead);
  const Reach reach = reach_of(m);
  if (p.items.empty()) return {};
  const double low = reach.smallest_bpw(), high = reach.largest_bpw(), head = head_price(m, plan);
  std::vector<double> sizes{plan.bpw_linears - kQuarter, plan.bpw_linears + kQuarter};
  for (int i = 0; i <= kSteps; ++i) sizes.push_back(low + (high - low) * i / kSteps);
  std::erase_if(sizes, [&](double bpw) { return bpw < low || bpw > high; });
  std::vector<PlanPoint> points{{plan.bpw_linears, plan.predicted_kld, {}}};
  for (const double bpw : sizes) {
    const auto bits = static_cast<uint64_t>(std::llround(bpw * static_cast<double>(reach.weights)));
    const Choices c = choose(p, std::max(bits, reach.smallest) - reach.plain_bits);
    points.push_back({static_cast<double>(c.linears.bits + reach.plain_bits) / static_cast<double>(reach.weights),
                      c.linears.price + head,
                      {}});
  }
  std::sort(points.begin(), points.end(), [](const PlanPoint& a, const PlanPoint& b) { return a.bpw < b.bpw; });
  return points;
}

std::vector<PlanPoint> uniform_plans_of(const Measurement& m, const OutputPlan& plan) {
  const Problem p = problem_of(m, kPlainHead);
  const Reach reach = reach_of(m);
  std::vector<PlanPoint> points;
  if (p.items.empty()) return points;
  for (const std::vector<size_t>& choices : p.uniform) {
    uint64_t bits = reach.plain_bits;
    double price = head_price(m, plan);
    for (size_t i = 0; i < choices.size(); ++i) {
      bits += p.items[i][choices[i]].bits;
      price += p.items[i][choices[i]].price;
    }
    const quant::BitRun& run = p.linears.front()->candidates[choices.front()].layout.runs.front();
    points.push_back({static_cast<double>(bits) / static_cast<double>(reach.weights), price,
                      fmt::format("{} bits, groups of {}", run.bits, run.group_size)});
  }
  return points;
}

}  // namespace bw::pipeline
