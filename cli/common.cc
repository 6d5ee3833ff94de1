#include <cstdio>
#include <fstream>
#include <memory>

#include <fmt/format.h>
#include <unistd.h>

#include "commands.h"

namespace bw::cli {
namespace {

// One line that is rewritten on a terminal; elsewhere a plain line for each tenth of a stage.
class ProgressPrinter {
 public:
  ~ProgressPrinter() { clear(); }

  void show(const ProgressEvent& event) {
    if (event.kind != ProgressEvent::Kind::kProgress) {
      clear();
      fmt::print(stderr, "{}{}: {}\n", event.kind == ProgressEvent::Kind::kWarning ? "warning: " : "", event.stage,
                 event.text);
      return;
    }
    const int percent = event.total > 0 ? static_cast<int>(100 * event.done / event.total) : 0;
    if (terminal_) {
      fmt::print(stderr, "\r\x1b[K{:<17} {:3} %  {}", event.stage, percent, event.text);
      std::fflush(stderr);
      line_open_ = true;
      if (event.done >= event.total) clear();
      return;
    }
    if (event.stage == stage_ && percent < next_) return;
    if (event.stage != stage_) stage_ = event.stage;
    next_ = percent / 10 * 10 + 10;
    fmt::print(stderr, "{} {} % {}\n", event.stage, percent, event.text);
  }

 private:
  void clear() {
    if (line_open_) fmt::print(stderr, "\r\x1b[K");
    line_open_ = false;
  }

  bool terminal_ = isatty(STDERR_FILENO) != 0;
  bool line_open_ = false;
  std::string stage_;
  int next_ = 0;
};

}  // namespace

void add_common_options(CLI::App& command, CommonOptions& common) {
  command.add_option("--threads", common.threads, "Threads (0: one per core); results do not depend on it");
  command.add_option("--arithmetic", common.arithmetic, "Matrix products: auto, f32 or bf16")
      ->check(CLI::IsMember({"auto", "f32", "bf16"}));
  command.add_flag("--profile", common.profile, "Show the time of each stage");
  command.add_flag("-q,--quiet", common.quiet, "Show no progress");
}

EngineOptions engine_options(const CommonOptions& common) {
  EngineOptions engine;
  engine.threads = common.threads;
  engine.arithmetic = common.arithmetic == "f32"    ? Arithmetic::kF32
                      : common.arithmetic == "bf16" ? Arithmetic::kBF16
                                                    : Arithmetic::kAuto;
  if (!common.quiet) {
    auto printer = std::make_shared<ProgressPrinter>();
    engine.progress = [printer](const ProgressEvent& event) { printer->show(event); };
  }
  return engine;
}

void print_profile(const CommonOptions& common, const std::vector<StageTime>& stages) {
  if (!common.profile) return;
  fmt::print("\n{:<28}{:>10}{:>14}{:>10}\n", "stage", "seconds", "in products", "GFLOP/s");
  for (const StageTime& t : stages) {
    const bool products = t.product_seconds > 0;
    fmt::print("{:<28}{:>10.2f}{:>12.0f} %{:>10}\n", t.stage, t.seconds,
               t.seconds > 0 ? 100 * t.product_seconds / t.seconds : 0.0,
               products ? fmt::format("{:.0f}", t.product_flops / t.product_seconds / 1e9) : "-");
  }
}

void add_calibration_options(CLI::App& command, CalibrationOptions& calibration) {
  command
      .add_option("--calib", calibration.files,
                  "Calibration text, .txt or .jsonl; may be repeated (default: the model writes its own)")
      ->type_name("FILE");
  command.add_option("--calib-rows", calibration.rows, "Rows of calibration")->capture_default_str();
  command.add_option("--calib-length", calibration.length, "Tokens of a row")->capture_default_str();
  command.add_option("--seed", calibration.seed, "Seed of self-written calibration")->capture_default_str();
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw Error(ErrorCode::kIo, fmt::format("{}: cannot be written", path.string()));
}

}  // namespace bw::cli
