// What can be asked of Bitwright, and what comes back.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bitwright/error.h"

namespace bw {

// How matrix products are computed. kAuto: bfloat16 operands where the processor multiplies them in hardware, else
// float.
enum class Arithmetic { kAuto, kF32, kBF16 };

// How much is done for quality within the same bits. kFast: GPTQ alone. kNormal: each linear also makes up for what the
// ones below have disturbed, and codes are refined. kBest: refined for longer.
enum class Effort { kFast, kNormal, kBest };

// News from a long run. Called on the thread that called the run function.
struct ProgressEvent {
  enum class Kind { kProgress, kNote, kWarning };
  Kind kind = Kind::kProgress;
  std::string_view stage;  // "measure", "quantize", ...
  // In units of work: what is left takes about (total - done) / done of the time that done took. 0 for notes and
  // warnings.
  double done = 0, total = 0;
  std::string text;            // what is being worked on, or the note
  std::string_view unit = {};  // of done and total, plural: "layers", "tokens", "bytes"; empty: nothing one could count
};
using ProgressFunction = std::function<void(const ProgressEvent&)>;

struct EngineOptions {
  size_t threads = 0;  // 0: one per core; results do not depend on it
  Arithmetic arithmetic = Arithmetic::kAuto;
  std::string device = "cpu";   // one of device_names()
  uint64_t memory = 0;          // bytes that a job may use at most; refused if it needs more; 0: what there is
  uint64_t device_memory = 0;   // bytes of device memory to use at most; 0: what the device has
  std::filesystem::path trace;  // file for a timeline in Chrome's trace format; empty: none
  ProgressFunction progress;    // may be empty
  // May be empty. Asked wherever progress is reported before the end of a stage, on the thread that called the run
  // function: true ends the run with Error(kInterrupted), and what is half-written is removed.
  std::function<bool()> interrupted;
};

// Rows of calibration. Without files, the model writes its own text.
struct CalibrationOptions {
  // Each is a file (.txt, .jsonl, .parquet; see docs/calibration.md), a directory (such files in it and below,
  // sorted) or, where nothing has that name, a pattern with *, ? or [...].
  std::vector<std::filesystem::path> files;
  size_t rows = 36;
  size_t length = 512;  // tokens of a row
  uint64_t seed = 1;
  // One for each of `files`, above 0: its share of the rows. Empty: the files are one text, one after the other.
  std::vector<double> weights = {};
};

// The folder that keeps what a job has finished, so that the same call continues after the program was killed, and
// redoes only what other options change. It is removed when the job is complete.
struct WorkOptions {
  std::filesystem::path path;      // empty: the output's name with .work
  bool restart = false;            // forget what is there of an earlier job
  double checkpoint_seconds = 20;  // least time between saved states of layers; 0: after every layer
};

// What one stage of a run took, summed over layers.
struct StageTime {
  std::string stage;
  double seconds = 0;          // wall time of the host
  double product_seconds = 0;  // of them in the matrix products of linears and Hessians, where the device runs at once
  double product_flops = 0;    // 2 per multiply-add
  uint64_t launches = 0;       // operations given to the device
  uint64_t uploads = 0, upload_bytes = 0, downloads = 0, download_bytes = 0;  // copies to and from it
  uint64_t waits = 0;                                                         // times that the host waited for it
  double wait_seconds = 0;                                                    // and how long

  // Sums and differences of the numbers; the name stays.
  StageTime& operator+=(const StageTime& other);
  StageTime& operator-=(const StageTime& other);
};

struct CalibrateOptions {
  std::filesystem::path model;
  std::filesystem::path output;  // the rows as .jsonl, for CalibrationOptions::files; empty: none
  CalibrationOptions calibration;
  EngineOptions engine;
};

// What one entry of CalibrationOptions::files gives.
struct CalibrationSource {
  std::string name;
  size_t files = 0, texts = 0;
  size_t tokens = 0;       // there
  size_t rows = 0;         // that begin in it
  size_t used_tokens = 0;  // in rows, from whichever source they begin
  double share = 0;        // of the tokens of all rows
};

struct CalibrateResult {
  std::vector<CalibrationSource> sources;
  size_t rows = 0, length = 0;
};

struct RowShape {
  size_t rows = 0, length = 0;
};

struct MeasureOptions {
  std::filesystem::path model;
  std::filesystem::path output;  // measurement.json
  CalibrationOptions calibration;
  WorkOptions work;
  EngineOptions engine;
};

struct MeasureResult {
  size_t linears = 0, candidates = 0, tokens = 0;
  double smallest_bpw = 0, largest_bpw = 0;  // reach of --bpw
  std::vector<StageTime> stages;
};

inline constexpr int kDefaultHeadBits = 6;

struct QuantizeOptions {
  std::filesystem::path model;
  std::filesystem::path output;                      // with several targets: OUTPUT-<bpw>bpw for each
  std::optional<std::filesystem::path> measurement;  // reused; else measured first
  std::vector<double> bpw;       // targets: bits per weight of the decoder's linears, side tensors included
  std::optional<uint64_t> size;  // or: bytes of the whole output directory, its report and model card apart
  Effort effort = Effort::kNormal;
  // 2, 3, 4, 5, 6, 8, or 16 to leave the head as it is. nullopt: chosen together with the layouts of the linears; with
  // bpw, head and linears then take no more than the linears at that and a head of kDefaultHeadBits would.
  std::optional<int> head_bits = kDefaultHeadBits;
  uint64_t shard_bytes = uint64_t{8} << 30;
  bool overwrite = false;  // replace an output directory that Bitwright wrote
  CalibrationOptions calibration;
  WorkOptions work;
  EngineOptions engine;
  std::string command = {};  // as typed, for the report; empty: none
};

// A mean over tokens with its standard error, tokens taken as independent.
struct Estimate {
  double value = 0, error = 0;
};

// How far a model is from its original, as the job that made it has measured: on rows of the calibration text that were
// held out of it, or, where nothing was left of that, on tokens which the model has been fitted to (then other text
// comes out worse; see evaluate()).
struct MeasuredDivergence {
  Estimate kld;   // nats per token
  Estimate top1;  // share of the tokens with the same most likely token
  size_t tokens = 0;
  bool held_out = false;
};

struct QuantizeResult {
  std::filesystem::path output;
  double bpw_target = 0;   // of the linears; 0 if a size was asked for
  double bpw_linears = 0;  // reached
  double bpw_head = 0;
  double predicted_kld = 0;  // to the original, nats per token, from prices (docs/quality.md)
  MeasuredDivergence measured;
  uint64_t planned_bytes = 0, written_bytes = 0;  // of the whole directory, its report and model card apart
  double seconds = 0;                             // since the run began, measuring and earlier targets included
  std::vector<StageTime> stages;                  // the same
};

struct EvaluateOptions {
  std::filesystem::path model;
  std::optional<std::filesystem::path> reference;  // the original; without it, perplexity alone
  std::filesystem::path text;
  size_t rows = 16;
  size_t length = 512;
  EngineOptions engine;  // kAuto means kF32 here: rounding to bfloat16 would show in small divergences
};

struct EvaluateResult {
  size_t tokens = 0, rows = 0, length = 0;
  Estimate perplexity;
  uint64_t bytes = 0;      // of the model's tensor files
  double bpw_linears = 0;  // as stored: 16 or 32 for an unquantized model
  double bpw_head = 0;
  // With a reference only; nats per token of KLD(reference ‖ model).
  bool has_reference = false;
  Estimate reference_perplexity, kld, top1, log_ppl_ratio;
  double kld_median = 0, kld_p90 = 0, kld_p99 = 0, kld_p999 = 0, kld_max = 0;
  uint64_t reference_bytes = 0;
  double reference_bpw_linears = 0, reference_bpw_head = 0;
  std::vector<StageTime> stages;
};

// How a model writes on.
struct WritingOptions {
  std::filesystem::path model;
  size_t max_tokens = 128;  // of one text, at most 2^20
  // How tokens are drawn: from all at this temperature (0: the most likely one each time), of those the top_k most
  // likely (0: all), of those the most likely ones that make up the share top_p (in (0, 1]), and of those the ones that
  // are at least min_p (in [0, 1]) times as likely as the most likely one. The same seed draws the same.
  float temperature = 0, top_p = 1, min_p = 0;
  size_t top_k = 0;
  uint64_t seed = 1;
  // Texts that end what is written, before them; beside the end tokens of config.json and generation_config.json.
  std::vector<std::string> stop;
  EngineOptions engine;
  // Pieces of the text as they come, whole UTF-8 characters; may be empty.
  std::function<void(std::string_view)> on_text;
};

struct GenerateOptions : WritingOptions {
  std::string prompt;
  bool chat = false;   // prompt is a user's message, put through the model's chat template
  std::string system;  // with chat: the system's message before it; empty: none
};

// Why a text ends. kContext: it has as many tokens as there is room for.
enum class Ending { kMaxTokens, kEndToken, kStopText, kContext, kInterrupted };

struct GenerateResult {
  std::string text;
  size_t prompt_tokens = 0, tokens = 0;  // tokens: without the end token
  Ending ending = Ending::kMaxTokens;
  std::vector<StageTime> stages;
};

// The report of models that quantize() wrote.
struct ReportOptions {
  std::vector<std::filesystem::path> models;  // at least one: directories, or their report.json
};

// What a report begins with.
struct ReportFigures {
  std::string model;  // that was quantized
  double bpw_linears = 0, bpw_head = 0;
  uint64_t bytes = 0;
  double predicted_kld = 0;  // nats per token
  MeasuredDivergence measured;
};

struct ReportResult {
  std::vector<ReportFigures> models;
  std::string page;  // HTML that needs nothing else; of several models: the models beside each other
  std::string data;  // JSON (docs/report.md); of several models: a list
};

// Where two texts part: the token that each model has drawn there.
struct TokenDifference {
  size_t position = 0;  // tokens that are the same
  // Of model i; an end token, or a part of a character, as it is called in the vocabulary.
  std::array<std::string, 2> token;
  // [i][j]: the probability, at temperature 1, that model i gives to the token of model j.
  std::array<std::array<double, 2>, 2> probability{};
};

struct GenerateAgainstResult {
  size_t prompt_tokens = 0;
  std::string common;                         // the text in which both agree
  std::optional<TokenDifference> difference;  // none: they agree to the end
  std::array<std::string, 2> rest;            // what each writes after it
  std::array<size_t, 2> tokens{};             // of common and rest
  std::array<Ending, 2> ending{};
  std::vector<StageTime> stages;
};

inline constexpr size_t kDefaultContext = 8192;

struct ChatOptions : WritingOptions {
  std::string system;  // message of the system; empty: none
  size_t context = 0;  // tokens of a conversation; 0: as many as the model was made for, up to kDefaultContext
};

struct ChatAnswer {
  std::string text;
  size_t prompt_tokens = 0;  // of the conversation so far
  size_t reused_tokens = 0;  // of them: known from earlier turns
  size_t tokens = 0;         // of the answer, without the end token
  Ending ending = Ending::kMaxTokens;
};

// Something wrong or odd about a model directory, or about what is asked of it.
struct Finding {
  enum class Severity { kWarning, kError };
  Severity severity = Severity::kWarning;
  ErrorCode code = ErrorCode::kModel;  // of an error: what a job would end with
  std::string where;                   // file of the model directory or tensor; empty: the text says it
  std::string what;                    // expected and found
  std::string advice;                  // what to do; empty if nothing is known to help
};

struct PlanOptions {
  std::filesystem::path model;
  std::filesystem::path output;  // of `quantize`, or a directory for what is written; empty: disk space is not checked
  // Targets as of QuantizeOptions; without any, the job is to measure alone.
  std::vector<double> bpw;
  std::optional<uint64_t> size;
  std::optional<int> head_bits = kDefaultHeadBits;
  bool overwrite = false;
  CalibrationOptions calibration;  // files, where they are given, are read and tokenized
  EngineOptions engine;
};

struct StageNeed {
  std::string stage;
  uint64_t memory_bytes = 0;  // of the host at most, all that is held meanwhile included
};

struct TargetPlan {
  double bpw = 0;      // of the decoder's linears; 0 for a size
  uint64_t bytes = 0;  // of the whole directory, at most
};

struct PlanResult {
  std::vector<Finding> findings;  // errors first
  bool has_errors() const { return !findings.empty() && findings.front().severity == Finding::Severity::kError; }

  // All below is known only where no finding on the model is an error: `checked`.
  bool checked = false;
  std::string architecture;
  size_t layers = 0, hidden = 0, vocabulary = 0, parameters = 0;
  uint64_t tensor_bytes = 0;
  bool tied = false;

  double smallest_bpw = 0, largest_bpw = 0;        // reach of --bpw
  uint64_t smallest_bytes = 0, largest_bytes = 0;  // reach of --size, about
  double plain_share = 0;                          // of the linears' weights in blocks that must stay in f16
  std::vector<TargetPlan> targets;

  size_t tokens = 0;  // of calibration
  std::vector<StageNeed> stages;
  uint64_t memory_bytes = 0;                  // peak of the host, about
  uint64_t mapped_bytes = 0;                  // tensor files beside that, which the system takes away as it needs to
  uint64_t device_memory_bytes = 0;           // of a device with memory of its own, about; 0: it is the host's
  uint64_t disk_bytes = 0;                    // most that is written at any time, the output included
  uint64_t memory_there = 0, disk_there = 0;  // that this process may use; disk 0: no output is given
};

}  // namespace bw
