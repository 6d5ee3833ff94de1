// The flags of exllamav2's convert.py, for scripts that already use them. docs/convert.md has the table.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "commands.h"
#include "console.h"

namespace bw::cli {
namespace {

namespace fs = std::filesystem;

struct State {
  std::string input, work, output, output_measurement, measurement, calibration;
  double bits = 4.125, shard_megabytes = 8192;
  std::optional<double> rope_scale, rope_alpha;
  std::string head_bits = std::to_string(kDefaultHeadBits);
  std::optional<size_t> rows, length, measurement_rows, measurement_length;
  bool resume = false, no_resume = false, status_output = false, fast_safetensors = false, overwrite = false;
  size_t offload_layers = 0;
  CommonOptions common;
};

// Names of more than one letter after one dash, which are options there and would be several here.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kShortNames = {
    {{"-res", "--resume"},
     {"-nr", "--no_resume"},
     {"-cf", "--compile_full"},
     {"-ss", "--shard_size"},
     {"-rs", "--rope_scale"},
     {"-ra", "--rope_alpha"},
     {"-hb", "--head_bits"},
     {"-om", "--output_measurement"},
     {"-mr", "--measurement_rows"},
     {"-ml", "--measurement_length"},
     {"-so", "--status_output"},
     {"-hsol", "--hidden_state_offload_layers"},
     {"-fst", "--fast_safetensors"}}};

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(ErrorCode::kUsage, what, hint);
}

void note(const std::string& text) { Console::get().show({ProgressEvent::Kind::kNote, "convert", 0, 0, text, {}}); }

// What cannot be obeyed and would change the result.
void check(const State& s) {
  if (s.input.empty()) {
    refuse(s.resume ? "-res alone: the options of a job are not kept in its folder" : "-i is missing",
           s.resume ? "give the same command again: it goes on by itself" : "give the model directory");
  }
  if (s.resume && s.no_resume) refuse("-res and -nr exclude each other", "give one of them");
  if (!s.output_measurement.empty() && !s.output.empty()) refuse("-om and -cf exclude each other", "give one of them");
  if (!s.output_measurement.empty() && !s.measurement.empty()) {
    refuse("-om and -m exclude each other", "give one of them");
  }
  if (s.output_measurement.empty() && s.output.empty()) {
    refuse("-cf is missing: -o holds work in progress only, and no model is left in it",
           "give -cf DIR for the model, or -om FILE for a measurement alone");
  }
  for (const auto& [flag, value] : {std::pair{"-rs", s.rope_scale}, std::pair{"-ra", s.rope_alpha}}) {
    if (!value || *value == 1) continue;
    refuse(fmt::format("{} {}: positions are not scaled for the conversion", flag, *value),
           "set rope_scaling in a copy of the model's config.json, which then also holds for the output");
  }
  if (fs::exists(fs::path(s.work) / "job_new.json")) {
    refuse(fmt::format("-o {}: it holds a job of exllamav2's, which cannot be gone on with", s.work),
           "choose another -o");
  }
}

// What needs nothing to be done, or differs without harm.
void tell_differences(const State& s) {
  if (s.resume) note("-res: a job always goes on where it was");
  if (s.no_resume) note("-nr: only what Bitwright has left in -o is removed, nothing else there");
  if (s.status_output) note("-so: use --log json for progress that programs read");
  if (s.offload_layers > 0) note("-hsol: states are kept where there is room, see --memory and --device-memory");
  if (s.fast_safetensors) note("-fst: does nothing");
  if (s.calibration.empty()) note("no -c: the model writes its own calibration text; no built-in one is used");
  const bool measures = !s.output_measurement.empty();
  if (measures && (s.rows || s.length)) note("-r and -l are of no use with -om, which takes -mr and -ml");
  if (!measures && (s.measurement_rows || s.measurement_length)) {
    note(s.measurement.empty()
             ? "-mr and -ml: measuring takes the rows that are quantized with, -r and -l; for others, "
               "give -om first and then -m"
             : "-mr and -ml are of no use with -m");
  }
}

CalibrationOptions calibration_of(const State& s, std::optional<size_t> rows, std::optional<size_t> length) {
  CalibrationOptions c;
  if (!s.calibration.empty()) c.files = {s.calibration};
  c.rows = rows.value_or(c.rows);
  c.length = length.value_or(c.length);
  return c;
}

WorkOptions work_of(const State& s) {
  WorkOptions work;
  work.path = s.work;
  work.restart = s.no_resume;
  return work;
}

std::string run_measure(const State& s, const EngineOptions& engine) {
  MeasureOptions o;
  o.model = s.input;
  o.output = s.output_measurement;
  if (fs::is_directory(o.output)) o.output /= "measurement.json";
  o.calibration = calibration_of(s, s.measurement_rows, s.measurement_length);
  o.work = work_of(s);
  o.engine = engine;
  const MeasureResult r = measure(o);
  print_profile(s.common, r.stages);
  return "done: wrote " + o.output.string();
}

uint64_t shard_bytes(double megabytes) {
  if (!(megabytes > 0)) return 0;  // no limit, there too
  return static_cast<uint64_t>(std::min(std::ceil(megabytes * (1 << 20)), 9e18));
}

std::string run_quantize(const State& s, const EngineOptions& engine) {
  QuantizeOptions o;
  o.model = s.input;
  o.output = s.output;
  if (!s.measurement.empty()) o.measurement = s.measurement;
  o.bpw = {s.bits};
  o.head_bits = parse_head_bits(s.head_bits);
  o.shard_bytes = shard_bytes(s.shard_megabytes);
  o.overwrite = s.overwrite;
  o.calibration = calibration_of(s, s.rows, s.length);
  o.work = work_of(s);
  o.engine = engine;
  o.command = command_line();
  const QuantizeResult r = quantize(o).at(0);
  print_quantized(r, o.size);
  print_profile(s.common, r.stages);
  return "done: wrote " + r.output.string();
}

std::string run(const State& s) {
  outlive_readers();
  const EngineOptions engine = engine_options(s.common);
  check(s);
  tell_differences(s);
  return s.output_measurement.empty() ? run_quantize(s, engine) : run_measure(s, engine);
}

void add_rows(CLI::App& c, const char* name, std::optional<size_t>& rows, const char* text) {
  c.add_option(name, rows, text)->check(whole_number(1, kMostRows))->type_name("N");
}

void add_length(CLI::App& c, const char* name, std::optional<size_t>& length, const char* text) {
  c.add_option(name, length, text)->check(whole_number(2, kMostRowTokens))->type_name("N");
}

void add_job_options(CLI::App& c, State& s) {
  c.add_option("-i,--in_dir", s.input, "Hugging Face model directory")->type_name("DIR");
  c.add_option("-o,--out_dir", s.work, "Folder for work in progress; removed at the end")->required()->type_name("DIR");
  c.add_option("--compile_full", s.output, "(-cf) Output directory of the model")->type_name("DIR");
  c.add_option("-b,--bits", s.bits, "Bits per weight of the decoder's linears")
      ->capture_default_str()
      ->type_name("BPW");
  c.add_option("--head_bits", s.head_bits, "(-hb) Bits of the head")->capture_default_str()->type_name("BITS");
  c.add_option("--shard_size", s.shard_megabytes, "(-ss) Most tensor data in one file, in MiB (0: one file)")
      ->capture_default_str()
      ->type_name("N");
  c.add_option("--output_measurement", s.output_measurement, "(-om) Measure only, and write this file")
      ->type_name("FILE");
  c.add_option("-m,--measurement", s.measurement, "Measurement of Bitwright's to reuse")->type_name("FILE");
  c.add_flag("--no_resume", s.no_resume, "(-nr) Begin anew, whatever an earlier run has finished");
  c.add_flag("--resume", s.resume, "(-res) Go on with a job: done anyway where -o holds one");
}

void add_row_options(CLI::App& c, State& s) {
  c.add_option("-c,--cal_dataset", s.calibration,
               "Calibration text (.parquet, .txt or .jsonl; the model's own without one)")
      ->type_name("FILE");
  add_rows(c, "-r,--dataset_rows", s.rows, "Rows of calibration (default 36)");
  add_length(c, "-l,--length", s.length, "Tokens of a row (default 512)");
  add_rows(c, "--measurement_rows", s.measurement_rows, "(-mr) Rows of calibration with -om (default 36)");
  add_length(c, "--measurement_length", s.measurement_length, "(-ml) Tokens of a row with -om (default 512)");
}

void add_other_options(CLI::App& c, State& s) {
  c.add_option("--rope_scale", s.rope_scale, "(-rs) Refused, but for 1")->type_name("X");
  c.add_option("--rope_alpha", s.rope_alpha, "(-ra) Refused, but for 1")->type_name("X");
  c.add_flag("--status_output", s.status_output, "(-so) Needs nothing: see --log json");
  c.add_option("--hidden_state_offload_layers", s.offload_layers, "(-hsol) Needs nothing: see --memory")
      ->check(whole_number(0, UINT64_MAX))
      ->type_name("N");
  c.add_flag("--fast_safetensors", s.fast_safetensors, "(-fst) Does nothing, there too");
  c.add_flag("--overwrite", s.overwrite, "Replace an output directory that Bitwright wrote");
}

}  // namespace

std::vector<std::string> convert_arguments(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty() || words[0] != "convert") return words;
  for (std::string& word : words) {
    const size_t end = std::min(word.find('='), word.size());
    for (const auto& [name, full] : kShortNames) {
      if (std::string_view(word).substr(0, end) == name) word = std::string(full) + word.substr(end);
    }
  }
  return words;
}

void add_convert(CLI::App& app, Action& action) {
  auto s = std::make_shared<State>();
  CLI::App* c = app.add_subcommand("convert", "The flags of exllamav2's convert.py, for scripts that use them");
  c->footer(
      "Examples:\n  bitwright convert -i MODEL -o WORK -cf OUT -b 4.0\n"
      "  bitwright convert -i MODEL -o WORK -om measurement.json\n"
      "  bitwright convert -i MODEL -o WORK -nr -cf OUT -m measurement.json -b 3.5 -hb 6");
  add_job_options(*c, *s);
  add_row_options(*c, *s);
  add_other_options(*c, *s);
  add_common_options(*c, s->common);
  c->callback([s, &action] { action = [s] { return run(*s); }; });
}

}  // namespace bw::cli
