#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "terminal.h"

namespace bw::cli {
namespace {

struct State {
  GenerateOptions options;
  CommonOptions common;
  std::filesystem::path against;
};

std::string tokens_of(size_t count) { return fmt::format("{} token{}", count, count == 1 ? "" : "s"); }

std::string padded(const std::string& text, size_t columns, bool to_the_right) {
  const std::string space(columns - std::min(columns, width_of(text)), ' ');
  return to_the_right ? space + text : text + space;
}

// Both models in rows, what each has drawn in columns.
void print_difference(const TokenDifference& d, const std::array<std::string, 2>& models) {
  fmt::print("{}. How likely is what each goes on with, to each:\n",
             d.position == 0 ? "They differ from the first token" : "They differ after " + tokens_of(d.position));
  std::array<std::string, 2> token;
  for (size_t i = 0; i < 2; ++i) {
    token[i] = nlohmann::json(d.token[i]).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  const size_t first = std::max(width_of(models[0]), width_of(models[1]));
  const auto row = [&](const std::string& name, const std::string& a, const std::string& b) {
    fmt::print("  {}", padded(name, first, false));
    fmt::print("  {}", padded(a, std::max<size_t>(10, width_of(token[0])), true));
    fmt::print("  {}\n", padded(b, std::max<size_t>(10, width_of(token[1])), true));
  };
  row("", token[0], token[1]);
  for (size_t i = 0; i < 2; ++i) {
    row(models[i], fmt::format("{:.2f} %", 100 * d.probability[i][0]),
        fmt::format("{:.2f} %", 100 * d.probability[i][1]));
  }
}

std::string run_against(State& s) {
  const GenerateAgainstResult r = generate_against(s.options, s.against);
  if (!r.common.empty()) fmt::print("{}", r.difference ? "\n\n" : "\n");
  std::string last = "done: the same " + tokens_of(r.tokens[0]);
  if (r.difference) {
    const std::array<std::string, 2> models = {s.options.model.string(), s.against.string()};
    print_difference(*r.difference, models);
    for (size_t i = 0; i < 2; ++i) fmt::print("\n{}:\n{}\n", models[i], r.rest[i]);
    last = fmt::format("done: the same first {}, of {} and {}", tokens_of(r.difference->position), r.tokens[0],
                       r.tokens[1]);
  }
  print_profile(s.common, r.stages);
  return last;
}

std::string run(State& s) {
  s.common.quiet = true;
  s.options.engine = engine_options(s.common);
  s.options.on_text = [](std::string_view text) {
    fmt::print("{}", text);
    std::fflush(stdout);
  };
  if (!s.against.empty()) return run_against(s);
  const GenerateResult r = generate(s.options);
  fmt::print("\n");
  print_profile(s.common, r.stages);
  return fmt::format("done: {}{}", tokens_of(r.tokens),
                     r.ending == Ending::kEndToken   ? ", ended by the model"
                     : r.ending == Ending::kStopText ? ", ended by --stop"
                                                     : "");
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto s = std::make_shared<State>();
  CLI::App* c = app.add_subcommand("generate", "Let a model, original or quantized, write on");
  c->footer(
      "Examples:\n  bitwright generate OUT --prompt \"The sea is\" --max-tokens 40\n  bitwright generate OUT --chat "
      "--prompt \"Why is the sky blue?\" --temperature 0.7\n  bitwright generate MODEL --against OUT --prompt \"The "
      "sea "
      "is\"");
  add_writing_options(*c, s->options);
  c->add_option("-p,--prompt", s->options.prompt, "Text to go on from")->required()->type_name("TEXT");
  auto* chat = c->add_flag("--chat", s->options.chat, "The prompt is a user's message, put through the chat template");
  c->add_option("--system", s->options.system, "With --chat: the system's message before it")
      ->needs(chat)
      ->type_name("TEXT");
  c->add_option("--against", s->against,
                "Also let this model write, with the same draws, and show where the texts first differ")
      ->type_name("DIR");
  add_common_options(*c, s->common);
  c->callback([s, &action] { action = [s] { return run(*s); }; });
}

}  // namespace bw::cli
