// The subcommands. Each declares its options on the app it is given and runs when it is the one that was called.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

#include "bitwright/bitwright.h"

namespace bw::cli {

// Options that every command that computes has.
struct CommonOptions {
  size_t threads = 0;
  std::string arithmetic = "auto";
  bool quiet = false;
  bool profile = false;
};
void add_common_options(CLI::App& command, CommonOptions& common);
// The engine options they stand for, with progress shown on stderr.
EngineOptions engine_options(const CommonOptions& common);

// The time of each stage as a table on stdout, if asked for with --profile.
void print_profile(const CommonOptions& common, const std::vector<StageTime>& stages);

void add_calibration_options(CLI::App& command, CalibrationOptions& calibration);

// Writes the whole file; Error(kIo) if that fails.
void write_text(const std::filesystem::path& path, std::string_view text);

// Register a subcommand. `run` is set when it was called; it does the work and returns the last line ("done: ...").
using Action = std::function<std::string()>;
void add_quantize(CLI::App& app, Action& run);
void add_measure(CLI::App& app, Action& run);
void add_eval(CLI::App& app, Action& run);
void add_inspect(CLI::App& app, Action& run);
void add_generate(CLI::App& app, Action& run);

}  // namespace bw::cli
