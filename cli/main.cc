// bitwright: the command line. Exit status: 0 done, 2 usage, 3 bad model or data, 4 numeric, 5 I/O or disk, 6 internal,
// 130 interrupted.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands.h"
#include "console.h"
#include "option_list.h"

namespace {

int report(const std::string& what, bw::ErrorCode code) {
  bw::cli::Console::get().last_line("error: " + what, static_cast<int>(code));
  return static_cast<int>(code);
}

// What goes wrong before the options are read is told as they will ask for.
void choose_log(int argc, char** argv) {
  bw::cli::ConsoleOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i], next = i + 1 < argc ? argv[i + 1] : "";
    options.json |= word == "--log=json" || (word == "--log" && next == "json");
  }
  bw::cli::Console::get().configure(options);
}

// Refuses a word that stands where a command should and is none; CLI11 would only say that one is missing.
void check_command(const CLI::App& app, int argc, char** argv) {
  if (argc >= 2 && argv[1][0] == '-') return;
  const std::vector<std::string> known = bw::cli::command_names(app);
  if (argc < 2) {
    throw bw::Error(bw::ErrorCode::kUsage, fmt::format("give a command: {}", fmt::join(known, ", ")),
                    "see bitwright --help");
  }
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name() == argv[1]) return;
  }
  const std::string near = bw::cli::did_you_mean(argv[1], known);
  throw bw::Error(bw::ErrorCode::kUsage,
                  fmt::format("'{}' is no command{}", argv[1],
                              near.empty() ? fmt::format("; the commands are {}", fmt::join(known, ", ")) : near),
                  "see bitwright --help");
}

// An option that there is not, which is more to the point than what is missing without it; empty: all are known.
std::string unknown_option(const CLI::App& command) {
  for (const std::string& word : command.remaining()) {
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string name = word.substr(0, word.find('='));
    return fmt::format("{}: {} has no such option{}", name, command.get_name(),
                       bw::cli::did_you_mean(name, bw::cli::option_names(command)));
  }
  return {};
}

// Words that belong to nothing, in the order in which they were typed; empty: there are none.
std::string stray_words(const CLI::App& command) {
  const std::vector<std::string> words = command.remaining();
  if (words.empty()) return {};
  return fmt::format("'{}' {} too many: a text of several words needs quotes, several values commas between them",
                     fmt::join(words, "' '"), words.size() == 1 ? "is one word" : "are words");
}

std::string usage_error(const CLI::App& app, const CLI::ParseError& e) {
  std::string what = unknown_option(app), command;
  for (const CLI::App* called : app.get_subcommands()) {
    command = " " + called->get_name();
    if (what.empty()) what = unknown_option(*called);
    if (what.empty() && e.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) what = stray_words(*called);
  }
  if (what.empty()) what = e.what();
  return fmt::format("{}; see bitwright{} --help", what, command);
}

// A name or a number that is nothing, as of a variable that was not set.
void refuse_empty(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& value : option->results()) {
        if (!value.empty() || option->get_single_name() == "prompt") continue;  // any text may be gone on from
        throw bw::Error(bw::ErrorCode::kUsage, fmt::format("{}: the value is empty", option->get_name()),
                        fmt::format("see bitwright {} --help", command->get_name()));
      }
    }
  }
}

int run(int argc, char** argv) {
  CLI::App app("Bitwright quantizes language models: a Hugging Face directory in, a measured EXL2 model out.",
               "bitwright");
  app.footer(
      "Examples:\n  bitwright plan MODEL\n  bitwright quantize MODEL -o OUT --bpw 4.0\n"
      "  bitwright eval OUT --ref MODEL --text held-out.txt\n"
      "bitwright COMMAND --help shows the options of a command.");
  app.set_version_flag("--version", std::string(bw::version()));
  app.require_subcommand(1)->formatter(bw::cli::help_formatter());
  bw::cli::Action action;
  bw::cli::add_plan(app, action);
  bw::cli::add_quantize(app, action);
  bw::cli::add_measure(app, action);
  bw::cli::add_eval(app, action);
  bw::cli::add_inspect(app, action);
  bw::cli::add_report(app, action);
  bw::cli::add_calib(app, action);
  bw::cli::add_generate(app, action);
  bw::cli::add_chat(app, action);
  bw::cli::add_convert(app, action);
  bw::cli::add_man(app, action);
  bw::cli::add_completion(app, action);
  check_command(app, argc, argv);
  try {
    std::vector<std::string> words = bw::cli::convert_arguments(argc, argv);
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    app.parse(std::move(words));
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    return report(usage_error(app, e), bw::ErrorCode::kUsage);
  }
  refuse_empty(app);
  bw::cli::catch_interruptions();
  const std::string last = action();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return report("standard output cannot be written", bw::ErrorCode::kIo);
  }
  if (!last.empty()) bw::cli::Console::get().last_line(last, 0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  choose_log(argc, argv);
  bw::cli::remember_command(argc, argv);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes shall be a failing write, with its message
  bw::cli::end_on_lost_pages();
  try {
    return run(argc, argv);
  } catch (const bw::Error& e) {
    return report(e.what(), e.code());
  } catch (const std::system_error& e) {  // fmt: a stream that cannot be written
    return report(e.what(), bw::ErrorCode::kIo);
  } catch (const std::exception& e) {
    return report(fmt::format("internal error: {}", e.what()), bw::ErrorCode::kInternal);
  }
}
