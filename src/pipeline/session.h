// What every stage works with: the model directory, the device, the decoder.
#pragma once

#include <memory>
#include <optional>

#include "backend/backend.h"
#include "base/thread_pool.h"
#include "bitwright/options.h"
#include "calib/mix.h"
#include "model/model_dir.h"
#include "nn/decoder.h"
#include "pipeline/reporter.h"
#include "pipeline/stage_clock.h"
#include "pipeline/states.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace bw::pipeline {

backend::Precision precision_of(Arithmetic arithmetic);

// The loader of a model's linears: (out, in) floats of an unquantized linear, or of an EXL2 one unpacked on the device.
nn::Decoder::LinearLoader linear_loader(const model::ModelDir& dir, backend::Backend& device);

// The device and the reporter of a run; made once, before any model is opened.
struct Run {
  explicit Run(const EngineOptions& options);
  // On this device, whatever the options name.
  Run(const EngineOptions& options, std::unique_ptr<backend::Backend> device);
  std::unique_ptr<backend::Trace> trace;     // null: none is asked for
  std::unique_ptr<backend::Backend> device;  // goes before the trace
  backend::Precision precision;
  ThreadPool pool;  // for the host's own work
  Reporter reporter;
  StageClock clock;
  bool states_on_disk = false;  // memory has no room for those of all rows
};

// Writes the trace of what has run so far, if one is asked for.
void write_trace(const Run& run, const EngineOptions& options);

// The model's chat template, or none; a template that cannot be read is a warning, since only chats need it.
std::optional<tokenizer::ChatTemplate> load_chat_template(const std::filesystem::path& dir, Reporter& reporter);

// Warns if rows of `length` tokens go beyond the positions that the model was made for.
void warn_beyond_positions(Run& run, const model::ModelDir& dir, size_t length);

// Calibration rows as the options ask for, from files or written by the model itself, and what they are made of.
calib::Mix calibration_mix(Run& run, const model::ModelDir& dir, const CalibrationOptions& options);
// The rows alone.
calib::Rows calibration_rows(Run& run, const model::ModelDir& dir, const CalibrationOptions& options);

// Device memory that is needed, about, for the states of `tokens` tokens and to work on one layer while the next
// arrives.
uint64_t device_bytes_needed(const model::ModelConfig& config, size_t tokens);
// Weights of the linears of all layers.
uint64_t weights_of_layers(const model::ModelConfig& config);
// The head's weights, counted in layers: what passing it takes, where passing a layer is 1.
double layers_in_head(const model::ModelDir& dir);

// Rows of logits that exist at once, of each model; and tokens of whole rows whose activations do on the way back.
inline constexpr size_t kLogitTokens = 128, kBackwardTokens = 2048;
// Tokens, at most, that prices are held against.
inline constexpr size_t kHeldOutTokens = 2048;

// The embedded rows. A batch holds about kBatchTokens tokens: its size must not depend on the number of threads. Where
// a memory limit leaves no room for the states of all rows beside the weights of two layers, they stay on the host (and
// the reporter is told). Where the run keeps states on disk, they are in a file in `scratch`, if that is given. copies:
// how many states of these rows there will be at once.
inline constexpr size_t kBatchTokens = 4096;
States embed_rows(Run& run, const nn::Decoder& decoder, const model::ModelDir& dir, const calib::Rows& rows,
                  const std::filesystem::path& scratch, size_t copies = 1);

}  // namespace bw::pipeline
