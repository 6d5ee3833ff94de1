// A conversation with a model that stays in memory.
#pragma once

#include "base/rng.h"
#include "bitwright/options.h"
#include "pipeline/writer.h"

namespace bw::pipeline {

class Conversation {
 public:
  // Throws Error(kModel) if the model has no chat template.
  explicit Conversation(const ChatOptions& options);

  // See Chat in bitwright.h.
  ChatAnswer say(std::string_view message);
  void reset();
  size_t context() const { return context_; }
  std::vector<StageTime> stages() const { return run_.clock.times(); }

 private:
  std::vector<uint32_t> prompt_ids(const io::OrderedJson& messages) const;

  ChatOptions options_;
  Run run_;
  const model::ModelDir dir_;
  const tokenizer::Tokenizer tokenizer_;
  const tokenizer::ChatTemplate template_;
  size_t context_;
  Writer writer_;
  Rng rng_;
  io::OrderedJson messages_;
};

}  // namespace bw::pipeline
