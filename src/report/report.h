// What is told of a quantized model: everything that a reader of its report or model card sees, as data, and as text.
// Pure: no files, no clock, no device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bitwright/options.h"
#include "io/json.h"

namespace bw::report {

// A linear of the decoder, or the head.
struct Linear {
  std::string key;     // "model.layers.3.mlp.up_proj"
  std::string module;  // "up_proj", "lm_head"
  size_t layer = 0;    // of the head: the number of layers
  uint64_t in = 0, out = 0;
  std::string layout;  // "6b128g64 4b448g64"; "f16"
  double bpw = 0;      // stored bits by weights
  double price = 0;    // nats per token, predicted; 0 for f16
};

// A plan that could be: bits per weight of the linears, predicted KLD (nats per token, the head's price included).
struct PlanPoint {
  double bpw = 0, kld = 0;
  std::string name;  // "4 bits, groups of 64" of a uniform plan
};

// What the model costs of which only the first layers are quantized, or all and then the head.
struct TracePoint {
  size_t layers = 0;
  bool head = false;
  double predicted = 0;  // nats per token: the sum of their prices
  Estimate measured;     // on the tokens of one row that is held out
};

struct Report {
  std::string version, model, architecture, fingerprint;  // the model: its directory's name, or its id on a hub
  std::string command;                                    // as typed; empty: the library was called
  size_t layers = 0, hidden = 0, vocabulary = 0, parameters = 0;
  uint64_t original_bytes = 0, bytes = 0;  // of all tensor files of the original; of the output's model files
  double bpw_target = 0;                   // 0: a size was asked for
  double bpw_linears = 0, bpw_head = 0, predicted_kld = 0;
  EvaluateResult measured;        // kld and its percentiles, top1, perplexities, tokens
  bool held_out = false;          // on rows that are no calibration; else on tokens the model has been fitted to
  std::vector<Linear> linears;    // by layer, then module; the head last
  std::vector<TracePoint> trace;  // by what is quantized; the whole model last
  std::vector<PlanPoint> frontier, uniform;
  std::string effort, device, arithmetic;
  size_t threads = 0;
  uint64_t seed = 0;
  std::string calibration, text_fingerprint;  // what the rows are made of; of the texts
  size_t rows = 0, length = 0;
  std::vector<CalibrationSource> sources;
  std::vector<std::string> warnings;
  // These alone differ from one run to the next.
  std::vector<StageTime> stages;
  double seconds = 0;
  uint64_t peak_memory = 0;  // bytes of this process
};

// docs/report.md has the schema. Numbers that are none become null.
io::OrderedJson to_json(const Report& report);
// Throws Error(kModel) beginning with `name` for anything that to_json cannot have written.
Report parse_report(const io::Json& json, const std::string& name);

// One page of HTML that needs nothing else: no network, no scripts; UTF-8.
std::string html_page(const Report& report);
// The same models beside each other, at least one.
std::string html_comparison(std::span<const Report> reports);

// README.md of the output: YAML front matter, figures, how it was made and is loaded. It is for the public, and depends
// on nothing that differs between runs: command and warnings, which name paths, are in the report alone. license: of
// the original, as its own card tells; empty: it does not. original_card: the file that keeps it; empty: there is none.
std::string model_card(const Report& report, const std::string& license, const std::string& original_card);

}  // namespace bw::report
