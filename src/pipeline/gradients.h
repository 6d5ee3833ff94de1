// The gradient stage: what the loss feels of every linear's output, by one forward and one backward pass.
#pragma once

#include <string>
#include <vector>

#include "nn/layer_gradient.h"
#include "pipeline/job_dir.h"
#include "pipeline/session.h"

namespace bw::pipeline {

// Squared gradients, Σ_j g_tj² over the outputs of a linear, for every token of the rows. The loss of a token is -log p
// of a successor drawn from the model's own output, so that their mean over tokens is Fisher information and not the
// surprise of this text (design: 'Cost in nats').
struct TokenGains {
  std::vector<Matrix<float>> layers;  // (tokens, kLinearsPerLayer) each
  Matrix<float> head;                 // (tokens, 1)
};

// Sees the head and then every linear of every layer on the way back, last layer first.
class GradientVisitor {
 public:
  virtual ~GradientVisitor() = default;
  // Some tokens of the head: its input x (T, hidden), after the norm, and their gains (T, 1).
  virtual void visit_head(const backend::Tensor& x, const backend::Tensor& gains) = 0;
  // After all of them; weights: the raw head; gains (tokens, 1): of all.
  virtual void end_head(const backend::Tensor& weights, const backend::Tensor& gains) = 0;
  // All calls for one layer stand between these; weights has the raw linears.
  virtual void begin(size_t layer, const nn::LayerWeights& weights) = 0;
  // gains (tokens, kLinearsPerLayer): of all tokens.
  virtual void end(size_t layer, const nn::LayerWeights& weights, const backend::Tensor& gains) = 0;
  // Some tokens of a linear: its input x (T, in) and their gains (T, 1).
  virtual void visit(model::LinearKind kind, const backend::Tensor& x, const backend::Tensor& gains) = 0;
  // What it has found between two layers, and back again in a later run: nothing changes if that throws, Error(kModel)
  // or a JSON exception, for what it cannot understand.
  virtual io::Json save() = 0;
  virtual void restore(const io::Json& found) = 0;
};

// Where a stage keeps what a later run continues from. key: of all that its results depend on.
struct StageWork {
  JobDir& job;
  std::string key;
};

// `seed`: of the drawn successors. visitor: may be null. The work folder takes 2 bytes · tokens · hidden · layers for
// the layers' inputs, which are gone at the end.
TokenGains find_gradients(Run& run, const model::ModelDir& dir, const calib::Rows& rows, uint64_t seed,
                          const StageWork& work, GradientVisitor* visitor);

}  // namespace bw::pipeline
