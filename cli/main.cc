// bitwright: the command line. Exit status: 0 done, 2 usage, 3 bad model or data, 4 numeric, 5 I/O or disk, 6 internal,
// 130 interrupted.
#include <csignal>
#include <cstdio>
#include <exception>
#include <system_error>

#include <fmt/format.h>

#include "commands.h"

namespace {

// The last line. A closed stderr is no reason to fail: the exit status tells the same.
void say_last(const std::string& line) {
  std::fflush(stdout);  // it stands last, also where both streams go to one place
  std::fputs((line + "\n").c_str(), stderr);
}

int report(const std::string& what, bw::ErrorCode code) {
  say_last("error: " + what);
  return static_cast<int>(code);
}

// Refuses a word that stands where a command should and is none; CLI11 would only say that one is missing.
void check_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::string known;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name() == argv[1]) return;
    known += (known.empty() ? "" : ", ") + command->get_name();
  }
  throw bw::Error(bw::ErrorCode::kUsage, fmt::format("'{}' is no command; the commands are {}", argv[1], known),
                  "see bitwright --help");
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
  app.set_version_flag("--version", std::string(bw::version()));
  app.require_subcommand(1);
  bw::cli::Action action;
  bw::cli::add_plan(app, action);
  bw::cli::add_quantize(app, action);
  bw::cli::add_measure(app, action);
  bw::cli::add_eval(app, action);
  bw::cli::add_inspect(app, action);
  bw::cli::add_generate(app, action);
  check_command(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    const std::string command = argc > 1 && argv[1][0] != '-' ? fmt::format(" {}", argv[1]) : std::string();
    return report(fmt::format("{}; see bitwright{} --help", e.what(), command), bw::ErrorCode::kUsage);
  }
  refuse_empty(app);
  bw::cli::catch_interruptions();
  const std::string last = action();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return report("standard output cannot be written", bw::ErrorCode::kIo);
  }
  say_last(last);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes shall be a failing write, with its message
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
