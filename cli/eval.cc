#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"

namespace bw::cli {
namespace {

struct State {
  EvaluateOptions options;
  CommonOptions common;
  std::string reference, json;
};

void print(const EvaluateResult& r) {
  if (r.has_reference) {
    fmt::print(
        "KLD         mean {:.5f} +- {:.5f}   median {:.5f}   90% {:.4f}   99% {:.4f}   99.9% {:.4f}   max {:.3f}   "
        "(nats per token)\n",
        r.kld.value, r.kld.error, r.kld_median, r.kld_p90, r.kld_p99, r.kld_p999, r.kld_max);
    fmt::print("top-1       {:.2f} +- {:.2f} % the same\n", 100 * r.top1.value, 100 * r.top1.error);
    fmt::print("perplexity  {:.4f} +- {:.4f}, reference {:.4f} +- {:.4f}, ln ratio {:+.5f} +- {:.5f}\n",
               r.perplexity.value, r.perplexity.error, r.reference_perplexity.value, r.reference_perplexity.error,
               r.log_ppl_ratio.value, r.log_ppl_ratio.error);
  } else {
    fmt::print("perplexity  {:.4f} +- {:.4f}\n", r.perplexity.value, r.perplexity.error);
  }
  fmt::print("size        {:.1f} MB of tensors, linears {:.4f} bits per weight, head {:.4f}\n",
             static_cast<double>(r.bytes) / 1e6, r.bpw_linears, r.bpw_head);
  fmt::print("text        {} rows of {} tokens, {} positions\n", r.rows, r.length, r.tokens);
}

nlohmann::ordered_json to_json(const EvaluateResult& r) {
  nlohmann::ordered_json j = {{"tokens", r.tokens},           {"rows", r.rows},
                              {"length", r.length},           {"bytes", r.bytes},
                              {"bpw_linears", r.bpw_linears}, {"bpw_head", r.bpw_head},
                              {"ppl", r.perplexity.value},    {"ppl_se", r.perplexity.error}};
  if (!r.has_reference) return j;
  j.update({{"ref_bytes", r.reference_bytes},
            {"ref_bpw_linears", r.reference_bpw_linears},
            {"ref_bpw_head", r.reference_bpw_head},
            {"ppl_ref", r.reference_perplexity.value},
            {"ppl_ref_se", r.reference_perplexity.error},
            {"ln_ppl_ratio", r.log_ppl_ratio.value},
            {"ln_ppl_ratio_se", r.log_ppl_ratio.error},
            {"kld", r.kld.value},
            {"kld_se", r.kld.error},
            {"kld_median", r.kld_median},
            {"kld_90", r.kld_p90},
            {"kld_99", r.kld_p99},
            {"kld_999", r.kld_p999},
            {"kld_max", r.kld_max},
            {"top1", r.top1.value},
            {"top1_se", r.top1.error}});
  return j;
}

std::string run(State& s) {
  if (!s.reference.empty()) s.options.reference = s.reference;
  s.options.engine = engine_options(s.common);
  const bool prints_json = s.json == "-";
  if (!s.json.empty() && !prints_json) {
    check_output_file(s.json, "--json", {s.options.model, s.reference, s.options.text, s.common.trace.value_or("")});
    check_writable(s.json);
  }
  const EvaluateResult r = evaluate(s.options);
  const std::string json = to_json(r).dump(1) + "\n";
  if (prints_json) {
    fmt::print("{}", json);
  } else {
    print(r);
  }
  print_profile(s.common, r.stages);
  if (!s.json.empty() && !prints_json) write_text(s.json, json);
  return "done: evaluated " + s.options.model.string();
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto s = std::make_shared<State>();
  CLI::App* c = app.add_subcommand("eval", "Perplexity of a model on a text, and its KL divergence to a reference");
  c->footer(
      "Examples:\n  bitwright eval OUT --ref MODEL --text held-out.txt\n  bitwright eval MODEL --text held-out.txt "
      "--rows 8");
  c->add_option("model", s->options.model, "Model directory, original or EXL2")->required()->type_name("DIR");
  c->add_option("--ref", s->reference, "The original model, to compare with")->type_name("DIR");
  c->add_option("--text", s->options.text, "Text that no calibration has seen (.txt, .jsonl or .parquet)")
      ->required()
      ->type_name("FILE");
  c->add_option("--rows", s->options.rows, "Rows, at even distances through the text")
      ->check(whole_number(1, kMostRows))
      ->type_name("N")
      ->capture_default_str();
  c->add_option("--length", s->options.length, "Tokens of a row")
      ->check(whole_number(2, kMostRowTokens))
      ->type_name("N")
      ->capture_default_str();
  c->add_option("--json", s->json, "Also write the figures to this file (-: to standard output instead of the table)")
      ->type_name("FILE");
  add_common_options(*c, s->common);
  c->callback([s, &action] { action = [s] { return run(*s); }; });
}

}  // namespace bw::cli
