// config.json, and what the folder of a tiny model says to it.
#include <algorithm>

#include "fuzz/folder.h"
#include "fuzz/target.h"
#include "model/model_dir.h"
#include "support/tiny_model.h"

using namespace bw;

namespace {

struct TinyFolder : fuzz::Folder {
  TinyFolder() {
    test::make_tiny_model(
        "LlamaForCausalLM",
        {.hidden = 4, .intermediate = 4, .layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 2, .vocab = 4})
        .save(path());
  }
};

}  // namespace

BW_FUZZ_TARGET(model_dir, input) {
  static const TinyFolder folder;
  folder.write("config.json", input);
  const model::ModelDir dir(folder.path(), true);
  fuzz::require(dir.config().n_layers == 1 && dir.vocab_rows() == 4, "the tensors say something else");
  for (size_t kind = 0; kind < model::kLinearsPerLayer; ++kind) {
    const model::LinearInfo info = dir.linear(0, static_cast<model::LinearKind>(kind));
    const Matrix<float> weight = dir.load_linear(info);
    fuzz::require(weight.rows() == info.out && weight.cols() == info.in, "a linear of another shape");
    dir.load_bias(info);
  }
  dir.load_norms(0);
  dir.load_final_norm();
}
