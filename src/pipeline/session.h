// What every stage works with: the model directory, the device, the decoder.
#pragma once

#include <memory>
#include <optional>

#include "backend/backend.h"
#include "bitwright/options.h"
#include "calib/rows.h"
#include "model/model_dir.h"
#include "nn/decoder.h"
#include "pipeline/reporter.h"
#include "pipeline/stage_clock.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace bw::pipeline {

backend::Precision precision_of(Arithmetic arithmetic);

// A model on disk and its loader of linears: (out, in) floats of an unquantized linear, or of an EXL2 one unpacked.
nn::Decoder::LinearLoader linear_loader(const model::ModelDir& dir, ThreadPool& pool);

// The device and the reporter of a run; made once, before any model is opened.
struct Run {
  explicit Run(const EngineOptions& options);
  std::unique_ptr<backend::Backend> device;
  backend::Precision precision;
  Reporter reporter;
  StageClock clock;
  ThreadPool& pool() const { return *device->host_pool(); }
};

// The model's chat template, or none; a template that cannot be read is a warning, since only chats need it.
std::optional<tokenizer::ChatTemplate> load_chat_template(const std::filesystem::path& dir, Reporter& reporter);

// Warns if rows of `length` tokens go beyond the positions that the model was made for.
void warn_beyond_positions(Run& run, const model::ModelDir& dir, size_t length);

// Calibration rows as the options ask for, from files or written by the model itself.
calib::Rows calibration_rows(Run& run, const model::ModelDir& dir, const CalibrationOptions& options);

// Hidden states of all tokens, in batches of whole rows. `h` of batch b is (tokens of b, hidden).
struct States {
  std::vector<nn::RowBatch> batches;
  std::vector<nn::Carry> carries;
  size_t tokens = 0;
};

// The embedded rows. A batch holds about kBatchTokens tokens: its size must not depend on the number of threads.
inline constexpr size_t kBatchTokens = 4096;
States embed_rows(const nn::Decoder& decoder, const model::ModelDir& dir, const calib::Rows& rows);

}  // namespace bw::pipeline
