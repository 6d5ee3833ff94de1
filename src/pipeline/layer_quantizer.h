// The quantization of one layer's linears, site by site.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "codec/exl2.h"
#include "pipeline/gradients.h"
#include "pipeline/layer_trace.h"
#include "pipeline/output_plan.h"
#include "pipeline/session.h"
#include "pipeline/state_range.h"
#include "pipeline/streams.h"
#include "quant/target.h"

namespace bw::pipeline {

// Share of the step towards the undisturbed outputs; docs/quality.md has the figures behind it.
inline constexpr float kCorrection = 0.5f;

// How much is done for the same bits (docs/quality.md tells what each step brings and costs).
struct RoundingEffort {
  int sweeps = 0;              // of coordinate descent after GPTQ
  bool weighs_tokens = false;  // by their gains; else all count the same
};
RoundingEffort rounding_effort(Effort effort);

// Linears of one file whose codes are on their way to the host.
struct PendingLinears {
  struct FactorStatus {
    std::string where;
    float damping = 0;  // asked for
    backend::HostTensor status;
  };
  std::vector<std::pair<std::string, codec::PackedLinear>> linears;  // key, tensors
  std::vector<FactorStatus> factors;
};

// What watches the streams on their way.
struct StreamWatchers {
  StateRange& range;
  LayerTrace& trace;
};

class LayerQuantizer {
 public:
  // All must outlive it. tokens: of the streams; gains: theirs, not looked at where tokens are not weighed.
  LayerQuantizer(Run& run, const model::ModelDir& dir, const nn::Decoder& decoder, const OutputPlan& plan,
                 RoundingEffort effort, size_t tokens, const TokenGains& gains, StreamWatchers watchers)
      : run_(run),
        device_(*run.device),
        dir_(dir),
        decoder_(decoder),
        plan_(plan),
        effort_(effort),
        tokens_(tokens),
        gains_(gains),
        watchers_(watchers) {}

  // Enqueues the quantization of the layer's linears and the move of the streams through the layer.
  PendingLinears enqueue_layer(size_t layer, nn::LayerWeights weights, Streams& streams);
  // The same for the head, which reads the final norm of the states; these stay as they are. Also the weights (vocab,
  // hidden) that a loader will compute.
  std::pair<PendingLinears, backend::Tensor> enqueue_head(Streams& streams);
  // The head where it is not quantized.
  backend::Tensor plain_head() { return as_half(linear_loader(dir_, device_)(dir_.head())); }

 private:
  // What the linears of a site share: they read the same inputs.
  struct SiteSums {
    backend::Tensor hessian;  // (in, in), upper triangle: Σ weight x̂ x̂ᵀ over the disturbed inputs; empty: not quantized
    quant::Disturbance disturbance;
    size_t batches = 0, tokens = 0, disturbed_tokens = 0;  // so far; disturbed: that the disturbance is summed over
  };

  bool is_quantized(const model::LinearInfo& info) const;
  // out: of the only linear of its site; 0: several share the sums.
  SiteSums empty_sums(size_t in, size_t out);
  // Of so many batches, one tells what inputs are off by: there may be far more tokens than a site of `in` inputs
  // needs.
  size_t disturbed_share(size_t in) const;
  // What the only linear of a site misses besides its own outputs: what the sum that it is added to is off by.
  struct Sum {
    backend::Tensor original, disturbed;
  };
  struct Missing {
    std::shared_ptr<const backend::Weight> linear;  // as it was; null: several share the sums
    std::optional<Sum> sum;                         // none: its output goes through a norm first
  };
  // The next batch: inputs as they are disturbed (x) and as they were. weight: (all tokens, 1).
  void add_batch(const backend::Tensor& weight, const backend::Tensor& x, const backend::Tensor& original_x,
                 const Missing& missing, SiteSums& sums);
  void add_disturbance(const backend::Tensor& weight, const backend::Tensor& x, const backend::Tensor& original_x,
                       const Missing& missing, quant::Disturbance& disturbance);
  backend::Tensor upload_site_weights(size_t layer, size_t tokens);
  backend::Tensor upload_head_weights(size_t tokens);
  SiteSums reach_site(size_t layer, size_t site, const nn::LayerWeights& weights, const nn::LayerWeights& original,
                      const backend::Tensor& token_weight, Streams& streams);
  quant::Factor factorize(const std::string& key, const backend::Tensor& hessian, bool keep_hessian,
                          PendingLinears& pending);
  quant::QuantizedLinear quantize_linear(const model::LinearInfo& info, backend::Tensor w, const SiteSums& sums,
                                         const quant::Factor& factor, int sweeps, PendingLinears& pending);
  backend::Tensor as_half(backend::Tensor w);

  Run& run_;
  backend::Backend& device_;
  const model::ModelDir& dir_;
  const nn::Decoder& decoder_;
  const OutputPlan& plan_;
  RoundingEffort effort_;
  size_t tokens_;
  const TokenGains& gains_;
  StreamWatchers watchers_;
};

}  // namespace bw::pipeline
