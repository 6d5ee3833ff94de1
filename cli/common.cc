#include <algorithm>
#include <cstdio>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands.h"
#include "console.h"

namespace bw::cli {

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const auto near = nearest_word(word, known);
  return near ? "; did you mean " + *near + "?" : std::string();
}

namespace {

std::string typed;

// A word as a shell reads it.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

}  // namespace

void remember_command(int argc, char** argv) {
  typed = "bitwright";
  for (int i = 1; i < argc; ++i) typed += " " + shell_word(argv[i]);
}

std::string command_line() { return typed; }

namespace {

template <typename T>
CLI::Validator within(T least, T most, const char* what) {
  const auto check = [=](const std::string& text) {
    const auto value = parse_number<T>(text);
    const bool good = value && *value >= least && *value <= most;
    return good ? std::string() : fmt::format("{} is not a {} from {} to {}", text, what, least, most);
  };
  return CLI::Validator(check, "");
}

}  // namespace

CLI::Validator whole_number(uint64_t least, uint64_t most) { return within(least, most, "whole number"); }
CLI::Validator number(double least, double most) { return within(least, most, "number"); }

void one_of(CLI::Option& option, const std::vector<std::string>& words) {
  const auto check = [words](const std::string& text) {
    if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
    return fmt::format("'{}' is none of {}{}", text, fmt::join(words, ", "), did_you_mean(text, words));
  };
  option.check(CLI::Validator(check, ""))->type_name(fmt::format("{}", fmt::join(words, "|")));
}

void add_common_options(CLI::App& command, CommonOptions& common) {
  command.add_option("--threads", common.threads, "Threads (0: one per core); results do not depend on it")
      ->check(whole_number(0, 1024))
      ->type_name("N");
  one_of(*command.add_option("--arithmetic", common.arithmetic, "Operands of matrix products")->capture_default_str(),
         {"auto", "f32", "bf16"});
  one_of(*command.add_option("--device", common.device, "Device to compute on")->capture_default_str(), device_names());
  command
      .add_option("--memory", common.memory,
                  "Memory that measure, quantize and plan may use at most, such as 1GB: a job that needs more is "
                  "refused with what it needs")
      ->type_name("SIZE");
  command
      .add_option("--device-memory", common.device_memory,
                  "Memory of the device to use at most, such as 8GB (not for cpu)")
      ->type_name("SIZE");
  command.add_flag("--profile", common.profile, "Show where the time went: stages, copies and waits");
  command.add_option("--trace", common.trace, "Write a timeline (Chrome trace format, opens in Perfetto)")
      ->type_name("FILE");
  one_of(
      *command.add_option("--log", common.log, "How to say on stderr what goes on: lines, or one JSON object a line")
           ->capture_default_str(),
      {"text", "json"});
  command.add_flag("-q,--quiet", common.quiet, "Show warnings only, no progress");
  command.add_flag("-v,--verbose", common.verbose, "Also show how long each layer took")->excludes("--quiet");
}

EngineOptions engine_options(const CommonOptions& common) {
  EngineOptions engine;
  engine.threads = common.threads;
  engine.arithmetic = common.arithmetic == "f32"    ? Arithmetic::kF32
                      : common.arithmetic == "bf16" ? Arithmetic::kBF16
                                                    : Arithmetic::kAuto;
  engine.device = common.device;
  if (common.memory) {
    engine.memory = parse_bytes(*common.memory, "--memory");
    if (engine.memory == 0) throw Error(ErrorCode::kUsage, "--memory: it must be more than 0");
  }
  if (common.device_memory) {
    engine.device_memory = parse_bytes(*common.device_memory, "--device-memory");
    if (engine.device_memory == 0) throw Error(ErrorCode::kUsage, "--device-memory: it must be more than 0");
  }
  engine.trace = common.trace.value_or("");
  engine.interrupted = [] { return interrupted(); };
  Console::get().configure({common.log == "json", common.quiet, common.verbose});
  engine.progress = [](const ProgressEvent& event) { Console::get().show(event); };
  return engine;
}

void print_profile(const CommonOptions& common, const std::vector<StageTime>& stages) {
  if (!common.profile) return;
  fmt::print("\n{:<30}{:>9}{:>12}{:>9}{:>9}{:>17}{:>17}{:>7}{:>9}\n", "stage", "seconds", "in products", "GFLOP/s",
             "launches", "to device", "from device", "waits", "waiting");
  const auto copies = [](uint64_t n, uint64_t bytes) {
    return n == 0 ? std::string("-") : fmt::format("{} / {}", n, format_bytes(bytes));
  };
  StageTime total;
  total.stage = "total";
  for (const StageTime& t : stages) total += t;
  const auto print_row = [&](const StageTime& t) {
    const bool products = t.product_seconds > 0;
    fmt::print("{:<30}{:>9.2f}{:>12}{:>9}{:>9}{:>17}{:>17}{:>7}{:>9.2f}\n", t.stage, t.seconds,
               products ? fmt::format("{:.0f} %", 100 * t.product_seconds / t.seconds) : "-",
               products ? fmt::format("{:.0f}", t.product_flops / t.product_seconds / 1e9) : "-", t.launches,
               copies(t.uploads, t.upload_bytes), copies(t.downloads, t.download_bytes), t.waits, t.wait_seconds);
  };
  for (const StageTime& t : stages) print_row(t);
  print_row(total);
}

std::vector<double> parse_bpw(const std::vector<std::string>& texts) {
  std::vector<double> values;
  for (const std::string& text : texts) {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      const auto value = parse_number<double>(std::string_view(text).substr(begin, end - begin));
      if (!value) {
        throw Error(ErrorCode::kUsage, fmt::format("--bpw {}: it is no list of numbers", text),
                    "give one, or several such as 3.0,4.0");
      }
      values.push_back(*value);
      begin = end + 1;
    }
  }
  return values;
}

std::optional<int> parse_head_bits(const std::string& text) {
  if (text == "auto") return std::nullopt;
  if (const auto bits = parse_number<int>(text)) return bits;
  throw Error(ErrorCode::kUsage, fmt::format("--head-bits {}: it is neither a number of bits nor auto", text),
              nearest_word(text, {"auto"}) ? "did you mean auto?" : "give 2, 3, 4, 5, 6, 8, 16 or auto");
}

void add_work_options(CLI::App& command, WorkOptions& work) {
  command
      .add_option(
          "--work", work.path,
          "Folder that keeps what is finished, so that the same command goes on after it was killed (default: the "
          "output's name with .work; removed at the end)")
      ->type_name("DIR");
  command.add_flag("--restart", work.restart, "Begin anew, whatever an earlier run has finished");
  command
      .add_option("--checkpoint", work.checkpoint_seconds,
                  "Seconds between saved states of layers at least; 0: after every layer")
      ->check(number(0, 86400))
      ->capture_default_str();
}

namespace {

std::filesystem::path temporary_of(const std::filesystem::path& path) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  return temporary;
}

bool written_in_place(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
}

[[noreturn]] void cannot_write(const std::filesystem::path& path) {
  throw Error(ErrorCode::kIo, fmt::format("{}: cannot be written", path.string()));
}

}  // namespace

void check_writable(const std::filesystem::path& path) {
  std::error_code error;
  if (written_in_place(path)) return;
  const std::filesystem::path temporary = temporary_of(path);
  if (!std::ofstream(temporary)) cannot_write(path);
  std::filesystem::remove(temporary, error);
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path to = written_in_place(path) ? path : temporary_of(path);
  std::ofstream file(to, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file && to != path) std::filesystem::rename(to, path, error);
  if (file && !error) return;
  if (to != path) std::filesystem::remove(to, error);
  cannot_write(path);
}

}  // namespace bw::cli
