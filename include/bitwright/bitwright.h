// Bitwright: quantizes language models. The whole public interface.
//
// Every function throws bw::Error; nothing prints, and the input is never written to.
#pragma once

#include <memory>

#include "bitwright/error.h"    // Error, ErrorCode
#include "bitwright/inspect.h"  // what inspection tells
#include "bitwright/options.h"  // options and results
#include "bitwright/suggest.h"  // nearest_word
#include "bitwright/units.h"    // parse_bytes, format_bytes

namespace bw {

// "0.1.0"
std::string_view version();

// Throws Error(kUsage), naming the option `name`, if writing `file` would overwrite or lie inside one of `others`
// (files or directories, links followed both ways; those that do not exist count by name), or if it is a directory. For
// files that a caller writes beside what Bitwright writes.
void check_output_file(const std::filesystem::path& file, std::string_view name,
                       const std::vector<std::filesystem::path>& others);

// The devices of this build: "cpu", "sim" (the CPU behind the queues of a far device, for tests), perhaps "cuda".
std::vector<std::string> device_names();

// Checks the model directory as a linter does and says what a job would need, without any work on weights. What is
// wrong with the model or the job is a finding; only a device that cannot be had, or options that make no sense for any
// model, are thrown.
PlanResult plan(const PlanOptions& options);

// Gives the calibration rows that the same options give measure() and quantize(), says what they are made of, and
// writes them as a file of rows: as the only file of calibration, with as many rows of that length, it gives the same
// rows.
CalibrateResult calibrate(const CalibrateOptions& options);

// How many rows of which length a file of rows holds; nullopt for any other file.
std::optional<RowShape> shape_of_rows(const std::filesystem::path& file);

// Runs calibration rows through the model, layer by layer, and writes what every way of storing every linear would
// cost.
MeasureResult measure(const MeasureOptions& options);

// Writes one EXL2 model for each target. Built in OUTPUT.partial and renamed when complete and verified.
std::vector<QuantizeResult> quantize(const QuantizeOptions& options);

// Perplexity of a model (original or EXL2) on a text, and with a reference its KL divergence to it.
EvaluateResult evaluate(const EvaluateOptions& options);

// Lets a model, original or quantized, write on from a text.
GenerateResult generate(const GenerateOptions& options);

// The report that quantize() wrote into each model's directory, drawn again, or several beside each other.
ReportResult read_reports(const ReportOptions& options);

// Lets two models write on from the same text, each from its own, with the same draws of chance; on_text gets what both
// write, until they differ. Both are in memory at once. Their tokenizers must give the same tokens.
GenerateAgainstResult generate_against(const GenerateOptions& options, const std::filesystem::path& other);

// A conversation with a model, through its chat template. What an answer has in common with the conversation before is
// not computed again. To be used by one thread.
class Chat {
 public:
  // Loads the model. Throws Error(kModel) also if it has no chat template.
  explicit Chat(const ChatOptions& options);
  Chat(Chat&&) noexcept;
  Chat& operator=(Chat&&) noexcept;
  ~Chat();
  // The answer to a message; both are part of the conversation from then on. EngineOptions::interrupted ends the
  // answer, which stays as far as it goes. Throws Error(kUsage) if the conversation is too long for the context, and
  // Error(kModel) if the template refuses it; it is then as it was before.
  ChatAnswer say(std::string_view message);
  // Forgets all but the system's message. The next answer is as the first one was.
  void reset();
  // Tokens that a conversation can have.
  size_t context() const;
  // What the answers took so far, and loading.
  std::vector<StageTime> stages() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What a model directory holds.
InspectResult inspect(const std::filesystem::path& model);

// What there is at a path: a model directory, a .safetensors file, a measurement or a work folder.
InspectReport inspect_path(const std::filesystem::path& path);

}  // namespace bw
