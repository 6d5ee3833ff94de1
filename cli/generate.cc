#include <cstdio>

#include <fmt/format.h>

#include "commands.h"

namespace bw::cli {
namespace {

struct State {
  GenerateOptions options;
  CommonOptions common;
};

std::string run(State& s) {
  s.common.quiet = true;
  s.options.engine = engine_options(s.common);
  s.options.on_text = [](std::string_view text) {
    fmt::print("{}", text);
    std::fflush(stdout);
  };
  const GenerateResult r = generate(s.options);
  fmt::print("\n");
  print_profile(s.common, r.stages);
  return fmt::format("done: {} tokens{}", r.tokens, r.stopped ? ", ended by the model" : "");
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto s = std::make_shared<State>();
  CLI::App* c = app.add_subcommand("generate", "Let a model, original or quantized, write on");
  c->footer(
      "Examples:\n  bitwright generate OUT --prompt \"The sea is\" --max-tokens 40\n  bitwright generate OUT --chat "
      "--prompt \"Why is the sky blue?\" --temperature 0.7");
  c->add_option("model", s->options.model, "Model directory, original or EXL2")->required()->type_name("DIR");
  c->add_option("-p,--prompt", s->options.prompt, "Text to go on from")->required();
  c->add_flag("--chat", s->options.chat, "The prompt is a user's message, put through the chat template");
  c->add_option("-n,--max-tokens", s->options.max_tokens, "Tokens to write at most")
      ->check(whole_number(0, uint64_t{1} << 20))
      ->type_name("N")
      ->capture_default_str();
  c->add_option("--temperature", s->options.temperature, "0: the most likely token each time")->capture_default_str();
  c->add_option("--top-p", s->options.top_p, "Sample from the most likely tokens that make up this share")
      ->capture_default_str();
  c->add_option("--top-k", s->options.top_k, "Sample from so many most likely tokens (0: all)")
      ->check(whole_number(0, UINT64_MAX))
      ->type_name("N")
      ->capture_default_str();
  c->add_option("--seed", s->options.seed, "Seed of sampling")
      ->check(whole_number(0, UINT64_MAX))
      ->type_name("N")
      ->capture_default_str();
  add_common_options(*c, s->common);
  c->callback([s, &action] { action = [s] { return run(*s); }; });
}

}  // namespace bw::cli
