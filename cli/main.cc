// bitwright: the command line. Exit status: 0 done, 2 usage, 3 bad model or data, 4 numeric, 5 I/O or disk, 6 internal.
#include <cstdio>
#include <exception>
#include <new>

#include <fmt/format.h>

#include "commands.h"

namespace {

int report(const std::string& what, bw::ErrorCode code) {
  fmt::print(stderr, "error: {}\n", what);
  return static_cast<int>(code);
}

int run(int argc, char** argv) {
  CLI::App app("Bitwright quantizes language models: a Hugging Face directory in, a measured EXL2 model out.",
               "bitwright");
  app.set_version_flag("--version", std::string(bw::version()));
  app.require_subcommand(1);
  bw::cli::Action action;
  bw::cli::add_quantize(app, action);
  bw::cli::add_measure(app, action);
  bw::cli::add_eval(app, action);
  bw::cli::add_inspect(app, action);
  bw::cli::add_generate(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    return report(fmt::format("{}; see bitwright --help", e.what()), bw::ErrorCode::kUsage);
  }
  const std::string last = action();
  std::fflush(stdout);  // the last line stands last, also where both streams go to one place
  fmt::print(stderr, "{}\n", last);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const bw::Error& e) {
    return report(e.what(), e.code());
  } catch (const std::exception& e) {
    return report(fmt::format("internal error: {}", e.what()), bw::ErrorCode::kInternal);
  }
}
