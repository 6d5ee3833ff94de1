// Calibration text that the model writes itself, for when none is given.
#pragma once

#include <functional>

#include "base/thread_pool.h"
#include "calib/rows.h"
#include "nn/language_model.h"
#include "tokenizer/chat_template.h"

namespace bw::calib {

struct SelfGenerateOptions {
  size_t rows = 36;
  size_t length = 512;
  uint64_t seed = 1;
};

// Throws Error(kUsage) with the numbers for rows that make no sense and for more than 2^32 tokens in all.
void check_self_generation(const SelfGenerateOptions& options);

// Rows of texts of 128 tokens (the last of a row is cut), each sampled from the model's own distribution: from BOS,
// where the tokenizer adds one, and a random ordinary token; one text in eight, where there is a chat template, from
// the opening of a user's turn. The same seed gives the same rows at any number of threads. `progress` (may be empty)
// is called with (tokens written, tokens in all). `pool`: for drawing, on the host. Throws what check_self_generation
// throws, and Error(kNumeric) if the model's logits are not finite.
Rows self_generate(const nn::LanguageModel& model, const tokenizer::Tokenizer& tokenizer,
                   const tokenizer::ChatTemplate* chat, const SelfGenerateOptions& options, ThreadPool& pool,
                   const std::function<void(size_t, size_t)>& progress);

// What a chat template puts before the words of the user's first message; empty if that cannot be told.
std::string user_turn_opening(const tokenizer::ChatTemplate& chat);

}  // namespace bw::calib
