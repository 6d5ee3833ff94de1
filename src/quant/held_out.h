// What errors cost on tokens that a factor was not made from.
#pragma once

#include <vector>

#include "quant/factor.h"

namespace bw::quant {

inline constexpr size_t kHeldOutShare = 4;  // one token of so many is held out

// Hessians Σ gain x xᵀ over three quarters of the tokens, for linears that read the same inputs x but count tokens each
// in its own way, and some of the other tokens, and of these, to hold against them. All calls enqueue work; nothing is
// waited for.
class HeldOutTokens {
 public:
  // `tokens` in all, with `in` inputs; `most`: of those held out that are kept, and as many of the others.
  HeldOutTokens(backend::Backend& device, size_t linears, size_t tokens, size_t in, size_t most,
                backend::Precision precision);

  // The next tokens of a linear: x (T, in), gains (T, 1). The last quarter of them is held out. All linears see the
  // same tokens in the same batches.
  void add(size_t linear, const backend::Tensor& x, const backend::Tensor& gains);
  const backend::Tensor& hessian(size_t linear) const { return linears_[linear].hessian; }  // (in, in), upper triangle
  // factor: of the linear's Hessian, after all tokens; all_gains (tokens, 1): of all of them. (in, 1) in the factor's
  // order: like Factor::weights, but of all tokens, as those that were held out show it (op::HeldOutWeights). GPTQ fits
  // its own tokens: what it leaves of them is too small, the more the fewer tokens there are for the number of inputs.
  // rounding_tokens: of the Hessian that the linear will be rounded with. What these leave follows from what is left of
  // held-out tokens and of the Hessian's own.
  backend::Tensor weights(size_t linear, const Factor& factor, const backend::Tensor& all_gains,
                          size_t rounding_tokens) const;
  void discard(size_t linear) { linears_[linear] = {}; }

 private:
  // What becomes of a batch: the first `used` tokens go into the Hessian, the last `kept` are kept from row `at` on,
  // and as many of the used ones, evenly spread, from row `most_ + at` on.
  struct Part {
    size_t used = 0, kept = 0, at = 0;
  };
  void begin_batch(const backend::Tensor& x);
  // Rows of x or gains of the batch that are kept.
  backend::Tensor held_out_of(const backend::Tensor& batch) const;
  backend::Tensor own_of(const backend::Tensor& batch) const;

  struct Linear {
    backend::Tensor hessian;
    backend::Tensor gains, own_gains;  // (kept, 1), zeros for the tokens of the other kind
    size_t seen = 0;
  };
  backend::Backend* device_;
  size_t tokens_, most_;
  backend::Precision precision_;
  std::vector<Linear> linears_;
  backend::Tensor x_;  // (kept, in): those held out, then those of the Hessian
  size_t seen_ = 0, held_out_ = 0, kept_ = 0;
  Part part_;
};

}  // namespace bw::quant
