// config.json.
#include "fuzz/target.h"
#include "model/config.h"

using namespace bw;

BW_FUZZ_TARGET(config, input) {
  const model::ModelConfig config = model::parse_config(io::parse_json(input, "input"), "input");
  fuzz::require(config.hidden > 0 && config.n_layers > 0 && config.n_heads > 0 && config.n_kv_heads > 0 &&
                    config.head_dim > 0 && config.vocab_size > 0 && config.max_position > 0,
                "a size is zero");
  fuzz::require(config.n_heads % config.n_kv_heads == 0, "heads do not fall into groups");
  fuzz::require(config.sliding.size() == config.n_layers, "not every layer slides or does not");
}
