// What every text that a model writes is made with: a model in memory with its cache, and one text in progress.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bitwright/options.h"
#include "nn/language_model.h"
#include "pipeline/session.h"
#include "tokenizer/stop_text.h"
#include "tokenizer/text_stream.h"

namespace bw::pipeline {

// Throws Error(kUsage) naming the option.
void check_writing(const WritingOptions& options);

// Throws Error(kModel) if the model has no row of the embedding for one of the ids.
void check_ids(std::span<const uint32_t> ids, const model::ModelDir& dir);

// Ids that end a text: those of config.json and generation_config.json.
std::vector<uint32_t> end_ids(const model::ModelDir& dir);

// A model in memory that knows the last tokens it was asked about.
class Writer {
 public:
  // run and dir must outlive it. length: tokens of the longest text.
  Writer(Run& run, const model::ModelDir& dir, size_t length);

  // The logits of the token after `ids` (not empty, at most `length`). Only those are computed that come after what
  // they have in common with the ids of the last call.
  std::vector<float> logits_after(std::span<const uint32_t> ids);
  // How many of these ids the next call knows.
  size_t known(std::span<const uint32_t> ids) const;

  size_t length() const { return length_; }
  const model::ModelDir& dir() const { return dir_; }

 private:
  Run& run_;
  const model::ModelDir& dir_;
  size_t length_;
  nn::LanguageModel model_;
  nn::KvCache cache_;
  std::vector<uint32_t> ids_;  // in the cache
};

// A text that grows token by token.
class Continuation {
 public:
  // writer, tokenizer and options must outlive it. ids: where it goes on from, at most as many as the writer takes. At
  // most options.max_tokens are written; `hand_out` (may be empty) gets the pieces.
  Continuation(Writer& writer, const tokenizer::Tokenizer& tokenizer, const WritingOptions& options,
               std::vector<uint32_t> ids, std::function<void(std::string_view)> hand_out);

  // Whether it has come to an end; then all of the text is handed out.
  bool done() const { return ending_.has_value(); }
  // Of the next token.
  std::vector<float> logits() { return writer_.logits_after(ids_); }
  // The token for logits(), by the options; u in [0, 1) decides.
  uint32_t draw(std::span<const float> logits, double u) const;
  void add(uint32_t id);
  void end(Ending ending);

  const std::string& text() const { return text_; }  // handed out so far
  size_t tokens() const { return tokens_; }
  const std::vector<uint32_t>& ids() const { return ids_; }  // the first ones and the text's, without an end token
  Ending ending() const { return *ending_; }

 private:
  void hand_out(const std::string& piece);
  void end_if_full();

  Writer& writer_;
  const WritingOptions& options_;
  std::vector<uint32_t> ids_, ends_;
  tokenizer::TextStream stream_;
  tokenizer::StopText stop_;
  std::function<void(std::string_view)> hand_out_;
  std::string text_;
  size_t tokens_ = 0;
  std::optional<Ending> ending_;
};

}  // namespace bw::pipeline
