#include <optional>

#include <fmt/format.h>

#include "commands.h"

namespace bw::cli {
namespace {

struct State {
  QuantizeOptions options;
  CommonOptions common;
  CalibrationArguments calibration;
  std::vector<std::string> bpw;
  std::string size, shard_size = "8GiB", measurement, effort = "normal", head_bits = std::to_string(kDefaultHeadBits);
};

std::string run(State& s) {
  outlive_readers();
  QuantizeOptions& o = s.options;
  o.bpw = parse_bpw(s.bpw);
  if (!s.size.empty()) o.size = parse_bytes(s.size, "--size");
  o.shard_bytes = parse_bytes(s.shard_size, "--shard-size");
  if (!s.measurement.empty()) o.measurement = s.measurement;
  o.head_bits = parse_head_bits(s.head_bits);
  o.effort = s.effort == "fast" ? Effort::kFast : s.effort == "best" ? Effort::kBest : Effort::kNormal;
  o.engine = engine_options(s.common);
  o.calibration = calibration_options(s.calibration);
  o.command = command_line();
  std::string last;
  const std::vector<QuantizeResult> results = quantize(o);
  for (const QuantizeResult& r : results) {
    print_quantized(r, o.size);
    last += (last.empty() ? "" : ", ") + r.output.string();
  }
  print_profile(s.common, results.back().stages);
  return "done: wrote " + last;
}

}  // namespace

void print_quantized(const QuantizeResult& r, std::optional<uint64_t> size) {
  fmt::print(
      "{}\n  target     {}\n  linears    {:.4f} bits per weight\n  head       {:.4f} bits per weight\n"
      "  predicted  {:.4f} nats per token from the original (from prices)\n"
      "  measured   {:.4f} ± {:.4f} on {} tokens {}, {:.1f} % same most likely token\n"
      "  planned    {} bytes\n  written    {} bytes\n  time       {:.1f} s since the start\n",
      r.output.string(), size ? fmt::format("{} bytes", *size) : fmt::format("{} bits per weight", r.bpw_target),
      r.bpw_linears, r.bpw_head, r.predicted_kld, r.measured.kld.value, r.measured.kld.error, r.measured.tokens,
      r.measured.held_out ? "held out of calibration" : "that it is fitted to (others are worse: see eval)",
      100 * r.measured.top1.value, r.planned_bytes, r.written_bytes, r.seconds);
}

void add_quantize(CLI::App& app, Action& action) {
  auto s = std::make_shared<State>();
  CLI::App* c = app.add_subcommand("quantize", "Measure, allocate, quantize and write an EXL2 model");
  c->footer(
      "Examples:\n  bitwright quantize MODEL -o OUT --bpw 4.0\n  bitwright quantize MODEL -o OUT --size 3.2GB --calib "
      "text.txt\n"
      "  bitwright quantize MODEL -o OUT --bpw 3.0,3.5,4.0 -m measurement.json");
  c->add_option("model", s->options.model, "Hugging Face model directory")->required()->type_name("DIR");
  c->add_option("-o,--output", s->options.output, "Output directory; with several targets OUTPUT-<bpw>bpw")
      ->required()
      ->type_name("DIR");
  c->add_option("--bpw", s->bpw, "Bits per weight of the decoder's linears, side tensors included; several: 3.0,4.0")
      ->allow_extra_args(false)
      ->type_name("BPW[,BPW...]");
  c->add_option("--size", s->size, "Size of the whole output (report and model card apart) instead, such as 3.2GB")
      ->type_name("SIZE");
  one_of(*c->add_option("--effort", s->effort, "Work done for quality within the same bits")->capture_default_str(),
         {"fast", "normal", "best"});
  c->add_option("--head-bits", s->head_bits,
                "Bits of the head: 2, 3, 4, 5, 6, 8, 16 to leave it, or auto: chosen with the linears (with --bpw, for "
                "as many bits in all as with 6)")
      ->capture_default_str()
      ->type_name("BITS");
  c->add_option("--shard-size", s->shard_size, "Most tensor data in one file (0: one file)")
      ->capture_default_str()
      ->type_name("SIZE");
  c->add_option("-m,--measurement", s->measurement, "Measurement to reuse (see: bitwright measure)")->type_name("FILE");
  c->add_flag("--overwrite", s->options.overwrite, "Replace an output directory that Bitwright wrote");
  add_calibration_options(*c, s->calibration);
  add_work_options(*c, s->options.work);
  add_common_options(*c, s->common);
  c->callback([s, &action] { action = [s] { return run(*s); }; });
}

}  // namespace bw::cli
