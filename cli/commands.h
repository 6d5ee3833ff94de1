// The subcommands. Each declares its options on the app it is given and runs when it is the one that was called.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>

#include "bitwright/bitwright.h"

namespace bw::cli {

// Bounds of --calib-rows, --calib-length, --rows and --length.
inline constexpr uint64_t kMostRows = uint64_t{1} << 32, kMostRowTokens = uint64_t{1} << 20;

// To be called before any thread is started. From now on the first SIGINT or SIGTERM is noted, for interrupted() to
// tell; a second one ends the program at once.
void catch_interruptions();
bool interrupted();
// Takes back a SIGINT, for a command that it ends only a part of; false: there is none to take back.
bool forget_interruption();
// Lets a file that shrinks while it is mapped end the program with a line and exit status 5.
void end_on_lost_pages();
// For jobs: they go on where nobody reads what they say any more (a closed pipe).
void outlive_readers();

// Options that every command that computes has.
struct CommonOptions {
  size_t threads = 0;
  std::string arithmetic = "auto", device = "cpu", log = "text";
  std::optional<std::string> memory, device_memory, trace;
  bool quiet = false, verbose = false;
  bool profile = false;
};
void add_common_options(CLI::App& command, CommonOptions& common);
// The engine options they stand for, with progress shown on stderr.
EngineOptions engine_options(const CommonOptions& common);

// The number that all of the text is; none: it is not one.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// "; did you mean WORD?" for a word that is none of the known ones, or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

// Refuses what is not a whole number from `least` to `most`, in one line.
CLI::Validator whole_number(uint64_t least, uint64_t most);

// The same for any number.
CLI::Validator number(double least, double most);

// Refuses all but these words, with the one that was probably meant. The option's type name is all of them: help,
// manual pages and completion tell them from there.
void one_of(CLI::Option& option, const std::vector<std::string>& words);

// The time of each stage as a table on stdout, if asked for with --profile.
void print_profile(const CommonOptions& common, const std::vector<StageTime>& stages);

// "3.0,4.0", given once or more often.
std::vector<double> parse_bpw(const std::vector<std::string>& texts);
// --head-bits: a number (which the library checks) or "auto".
std::optional<int> parse_head_bits(const std::string& text);

// The model as the first argument, and how it writes.
void add_writing_options(CLI::App& command, WritingOptions& writing);
// As JSON calls it: "end_token".
std::string_view ending_name(Ending ending);

void add_work_options(CLI::App& command, WorkOptions& work);

// What the options of calibration say.
struct CalibrationArguments {
  std::vector<std::string> sources;  // as given: PATH or PATH:WEIGHT
  CalibrationOptions options;        // without files
  const CLI::Option *rows = nullptr, *length = nullptr;
};
void add_calibration_options(CLI::App& command, CalibrationArguments& calibration);
// Sources and weights told apart, standard input ("-") read into a temporary file, and where the only source is a file
// of rows, as many of that length unless other options say so. To be called once.
CalibrationOptions calibration_options(const CalibrationArguments& arguments);

// What came of a target, as lines on stdout. size: that was asked for, if one was.
void print_quantized(const QuantizeResult& result, std::optional<uint64_t> size);

// Refuses, before the work, a file that cannot be written.
void check_writable(const std::filesystem::path& path);
// Writes the whole file, under its name only when complete (a device in place); Error(kIo) if that fails.
void write_text(const std::filesystem::path& path, std::string_view text);

// The command as it was typed, quoted for a shell. argv as main() has it; to be kept before it is asked for.
void remember_command(int argc, char** argv);
std::string command_line();

// Help in the width of the terminal. To be set before commands are added.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// The words of the command line after the program's name, those of `convert` as its options are called here ("-cf" is
// "--compile_full").
std::vector<std::string> convert_arguments(int argc, const char* const* argv);

// Register a subcommand. `run` is set when it was called; it does the work and returns the last line ("done: ...").
using Action = std::function<std::string()>;
void add_plan(CLI::App& app, Action& run);
void add_quantize(CLI::App& app, Action& run);
void add_measure(CLI::App& app, Action& run);
void add_eval(CLI::App& app, Action& run);
void add_inspect(CLI::App& app, Action& run);
void add_report(CLI::App& app, Action& run);
void add_generate(CLI::App& app, Action& run);
void add_chat(CLI::App& app, Action& run);
void add_convert(CLI::App& app, Action& run);
void add_calib(CLI::App& app, Action& run);
// Commands that help does not list: manual pages and completion, made from the options that are registered on `app`.
void add_man(CLI::App& app, Action& run);
void add_completion(CLI::App& app, Action& run);

}  // namespace bw::cli
