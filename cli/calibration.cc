// Calibration on the command line: --calib, and what goes with it.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "input.h"

namespace bw::cli {
namespace {

namespace fs = std::filesystem;

// A directory that goes when the program ends.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (fs::temp_directory_path() / "bitwright-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw Error(ErrorCode::kIo,
                  fmt::format("{}: a temporary directory cannot be made there", fs::temp_directory_path().string()));
    }
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Whether the first line that is not blank is a JSON object.
bool begins_with_object(const fs::path& file) {
  constexpr size_t kLongest = size_t{16} << 20;
  std::ifstream in(file, std::ios::binary);
  std::string line;
  char c = 0;
  while (line.size() < kLongest && in.get(c) && (c != '\n' || line.find_first_not_of(" \t\r\n") == std::string::npos)) {
    line += c;
  }
  return nlohmann::json::parse(line, nullptr, false).is_object();
}

void copy_standard_input(const fs::path& to) {
  std::ofstream file(to, std::ios::binary);
  std::vector<char> buffer(size_t{1} << 16);
  while (true) {
    const size_t n = read_input(buffer);
    if (n == 0) break;
    file.write(buffer.data(), static_cast<std::streamsize>(n));
    if (!file) break;
  }
  file.close();
  if (!file) throw Error(ErrorCode::kIo, fmt::format("{}: standard input cannot be written there", to.string()));
}

// Text that comes once is read more than once: it is kept until the program ends.
fs::path keep_standard_input() {
  static const TemporaryDirectory directory;
  const fs::path text = directory.path() / "stdin.txt", lines = directory.path() / "stdin.jsonl";
  copy_standard_input(text);
  if (fs::file_size(text) == 0) {
    throw Error(ErrorCode::kModel, "--calib -: standard input is empty", "pipe a text into it, or name a file");
  }
  if (!begins_with_object(text)) return text;
  fs::rename(text, lines);
  return lines;
}

struct WeighedPath {
  std::string path;
  std::optional<double> weight;
};

// A path that is there is what it says, whatever it looks like.
WeighedPath parse_source(const std::string& text) {
  std::error_code ignored;
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || fs::exists(text, ignored)) return {text, {}};
  const auto weight = parse_number<double>(std::string_view(text).substr(colon + 1));
  if (!weight) return {text, {}};
  if (std::isfinite(*weight) && *weight > 0) return {text.substr(0, colon), weight};
  throw Error(ErrorCode::kUsage, fmt::format("--calib {}: the weight is not above 0", text),
              "give a share of the rows, such as text.txt:2");
}

}  // namespace

void add_calibration_options(CLI::App& command, CalibrationArguments& calibration) {
  CalibrationOptions& options = calibration.options;
  command
      .add_option("--calib", calibration.sources,
                  "Calibration text: a .txt, .jsonl or .parquet file, a directory of such, a pattern in quotes, or - "
                  "for standard "
                  "input; may be repeated, with weights as shares of the rows (default: the model writes its own)")
      ->allow_extra_args(false)
      ->type_name("PATH[:WEIGHT]");
  calibration.rows =
      command.add_option("--calib-rows", options.rows, "Rows of calibration (default of a file of rows: all of them)")
          ->check(whole_number(1, kMostRows))
          ->capture_default_str()
          ->type_name("N");
  calibration.length =
      command.add_option("--calib-length", options.length, "Tokens of a row (of a file of rows: theirs)")
          ->check(whole_number(2, kMostRowTokens))
          ->capture_default_str()
          ->type_name("N");
  command
      .add_option("--seed", options.seed,
                  "Seed of self-written calibration, and of the successors that gradients are taken for")
      ->check(whole_number(0, UINT64_MAX))
      ->capture_default_str()
      ->type_name("N");
}

CalibrationOptions calibration_options(const CalibrationArguments& arguments) {
  CalibrationOptions options = arguments.options;
  std::vector<std::optional<double>> weights;
  bool weighed = false;
  std::vector<WeighedPath> sources;
  for (const std::string& text : arguments.sources) sources.push_back(parse_source(text));
  if (std::count_if(sources.begin(), sources.end(), [](const WeighedPath& s) { return s.path == "-"; }) > 1) {
    throw Error(ErrorCode::kUsage, "--calib -: standard input can be given once only");
  }
  for (const WeighedPath& source : sources) {
    options.files.push_back(source.path == "-" ? keep_standard_input() : fs::path(source.path));
    weights.push_back(source.weight);
    weighed |= source.weight.has_value();
  }
  if (weighed) {
    for (const auto& weight : weights) options.weights.push_back(weight.value_or(1));
  }
  if (options.files.size() != 1) return options;
  if (const auto shape = shape_of_rows(options.files.front())) {
    if (arguments.rows->count() == 0) options.rows = shape->rows;
    if (arguments.length->count() == 0) options.length = shape->length;
  }
  return options;
}

}  // namespace bw::cli
