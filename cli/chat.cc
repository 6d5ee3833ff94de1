// A conversation on the terminal, or of lines that come through a pipe.
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "console.h"
#include "input.h"

namespace bw::cli {
namespace {

struct State {
  ChatOptions options;
  CommonOptions common;
  bool json = false;
};

constexpr const char* kHint =
    "/reset begins anew, /exit or Ctrl-D ends. Ctrl-C stops an answer. A line that ends with \\ goes on in the next.\n";

// The next message: a line, with those that it says follow. nullopt: there is none.
std::optional<std::string> read_message(InputLines& lines, bool terminal) {
  std::string message;
  if (terminal) Console::get().ask("> ");
  for (auto line = lines.next(); line; line = lines.next()) {
    if (!line->ends_with('\\')) return message + *line;
    message += line->substr(0, line->size() - 1) + "\n";
    if (terminal) Console::get().ask(". ");
  }
  return message.empty() ? std::nullopt : std::optional(message);
}

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

class Talk {
 public:
  Talk(State& s, bool terminal) : s_(s), terminal_(terminal), chat_(s.options) {}

  // False: that was the end.
  bool take(const std::string& message) {
    if (is_blank(message)) return true;
    if (message == "/exit") return false;
    if (message == "/reset") {
      chat_.reset();
    } else {
      answer(message);
    }
    return true;
  }
  std::string last_line() const {
    return fmt::format("done: {} answer{}, {} tokens", answers_, answers_ == 1 ? "" : "s", tokens_);
  }
  std::vector<StageTime> stages() const { return chat_.stages(); }

 private:
  void answer(const std::string& message) {
    try {
      const ChatAnswer a = chat_.say(message);
      ++answers_;
      tokens_ += a.tokens;
      s_.json ? print_json(message, a) : print_end(a);
      if (a.ending == Ending::kInterrupted && !(terminal_ && forget_interruption())) {
        throw Error(ErrorCode::kInterrupted, "interrupted");
      }
    } catch (const Error& e) {
      // At a terminal the user can say something else.
      if (!terminal_ || (e.code() != ErrorCode::kUsage && e.code() != ErrorCode::kModel)) throw;
      Console::get().ask(fmt::format("error: {}\n", e.what()));
    }
  }
  void print_end(const ChatAnswer& a) const {
    fmt::print("\n");
    std::fflush(stdout);
    if (!terminal_) return;
    if (a.ending == Ending::kMaxTokens) Console::get().ask("(cut off by --max-tokens)\n");
    if (a.ending == Ending::kContext) Console::get().ask("(the context is full: /reset begins anew)\n");
    if (a.ending == Ending::kInterrupted) Console::get().ask("(stopped)\n");
  }
  static void print_json(const std::string& message, const ChatAnswer& a) {
    const nlohmann::ordered_json j = {{"message", message},
                                      {"answer", a.text},
                                      {"prompt_tokens", a.prompt_tokens},
                                      {"reused_tokens", a.reused_tokens},
                                      {"tokens", a.tokens},
                                      {"ending", ending_name(a.ending)}};
    fmt::print("{}\n", j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    std::fflush(stdout);
  }

  State& s_;
  bool terminal_;
  Chat chat_;
  size_t answers_ = 0, tokens_ = 0;
};

std::string run(State& s) {
  const bool terminal = isatty(STDIN_FILENO) != 0;
  s.common.quiet = true;
  s.options.engine = engine_options(s.common);
  if (!s.json) {
    s.options.on_text = [](std::string_view text) {
      fmt::print("{}", text);
      std::fflush(stdout);
    };
  }
  Talk talk(s, terminal);
  if (terminal) Console::get().ask(kHint);
  InputLines lines;
  try {
    while (const auto message = read_message(lines, terminal)) {
      if (!talk.take(*message)) break;
    }
  } catch (const Error& e) {
    if (terminal && e.code() == ErrorCode::kInterrupted) Console::get().ask("\n");  // after the terminal's ^C
    throw;
  }
  print_profile(s.common, talk.stages());
  return talk.last_line();
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  auto s = std::make_shared<State>();
  s->options.temperature = 0.7f;
  s->options.min_p = 0.05f;
  s->options.max_tokens = 1024;
  CLI::App* c = app.add_subcommand("chat", "Talk with a model, original or quantized");
  c->footer(
      "Examples:\n  bitwright chat OUT\n  bitwright chat OUT --system \"Answer in one sentence.\"\n"
      "  bitwright chat OUT --temperature 0 --json <questions.txt");
  add_writing_options(*c, s->options);
  c->add_option("--system", s->options.system, "The system's message, before the conversation")->type_name("TEXT");
  c->add_option("--context", s->options.context,
                "Tokens of a conversation at most (0: as many as the model was made for, up to 8192)")
      ->check(whole_number(0, uint64_t{1} << 20))
      ->type_name("N")
      ->capture_default_str();
  c->add_flag("--json", s->json, "Each answer as one line of JSON, when it is complete");
  add_common_options(*c, s->common);
  c->callback([s, &action] { action = [s] { return run(*s); }; });
}

}  // namespace bw::cli
