// A whole model on the device, for generation: all layers resident, one step at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "nn/decoder.h"

namespace bw::nn {

class LanguageModel {
 public:
  // `dir` must outlive the model. Loads every layer and the head; needs memory for all weights.
  LanguageModel(backend::Backend& device, const model::ModelDir& dir, size_t max_length, backend::Precision precision,
                const Decoder::LinearLoader& load_linear);

  // Feeds `length` new tokens of each of cache.sequences rows (ids: row after row) and returns the logits of each row's
  // last token: (sequences, vocab). Advances the cache; to forget its last positions, set a smaller cache.length. More
  // than one token after those cached only for one sequence.
  backend::Tensor step(std::span<const uint32_t> ids, size_t length, KvCache& cache) const;

  const Decoder& decoder() const { return decoder_; }
  const model::ModelDir& dir() const { return dir_; }

 private:
  const model::ModelDir& dir_;
  Decoder decoder_;
  std::vector<LayerWeights> layers_;
  backend::Tensor final_norm_;
  std::shared_ptr<const backend::Weight> head_;
};

// Moves a cache to a larger one if it cannot hold `length` positions; at least twice as large, so that a long text
// costs little copying and a short one little memory.
void make_room(backend::Backend& device, const model::ModelConfig& config, size_t length, KvCache& cache);

// How the next token is drawn from logits.
struct Sampling {
  float temperature = 0;  // 0: the most likely token
  float top_p = 1;        // smallest set of tokens whose probabilities reach it
  size_t top_k = 0;       // 0: all
  float min_p = 0;        // then no token that is less likely than this times the most likely one
};

// Draws a token; u in [0, 1) decides. Ties go to the lower id. logits: one row; Error(kNumeric) if one is NaN or inf.
uint32_t sample(std::span<const float> logits, const Sampling& sampling, double u);

// The probability that the model gives a token, at temperature 1. logits: one row, finite or -inf.
double probability(std::span<const float> logits, uint32_t token);

}  // namespace bw::nn
