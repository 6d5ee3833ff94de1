// Directories in EXL2 as ModelDir sees them: names, types and shapes; codec reads the values.
#include <gtest/gtest.h>

#include "model/model_dir.h"
#include "support/errors.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace bw::model {
namespace {

using io::TensorType;
using test::expect_error;
using test::TempDir;
using test::TinyModel;
using test::TinyTensor;

constexpr const char* kUp1 = "model.layers.1.mlp.up_proj";

TinyTensor zeros(const std::string& name, std::vector<uint64_t> shape) {
  size_t n = 1;
  for (const uint64_t d : shape) n *= d;
  return {name, std::move(shape), std::vector<float>(n)};
}

// Replaces KEY.weight by the tensors of a packed linear: 4 bits, two groups.
void pack(TinyModel& model, const std::string& key) {
  const std::vector<uint64_t> shape = model.at(key + ".weight").shape;
  const uint64_t out = (shape[0] + 31) / 32 * 32, in = shape[1];
  model.erase(key + ".weight");
  model.tensors.push_back(zeros(key + ".q_weight", {in * 4 / 32, out}));
  model.tensors.push_back(zeros(key + ".q_scale", {2, out / 8}));
  model.tensors.push_back(zeros(key + ".q_scale_max", {2}));
  model.tensors.push_back(zeros(key + ".q_groups", {4}));
  model.tensors.push_back(zeros(key + ".q_invperm", {in}));
}

TinyModel packed_model(const std::string& architecture = "LlamaForCausalLM", size_t vocab = 97) {
  TinyModel model = test::make_tiny_model(architecture, {.intermediate = 72, .vocab = vocab}, true);
  for (const TinyTensor& t : std::vector<TinyTensor>(model.tensors)) {
    const bool linear = t.shape.size() == 2 && t.name != "model.embed_tokens.weight";
    if (linear) pack(model, t.name.substr(0, t.name.size() - 7));
  }
  model.config["tie_word_embeddings"] = true;
  model.config["quantization_config"] = {{"quant_method", "exl2"}, {"bits", 4.0}};
  return model;
}

void save(const TinyModel& model, const TempDir& folder) {
  io::write_file(folder / "config.json", model.config.dump());
  std::vector<TensorType> types;
  for (const TinyTensor& t : model.tensors) {
    const bool words = t.name.ends_with(".q_weight") || t.name.ends_with(".q_scale") || t.name.ends_with(".q_invperm");
    types.push_back(words ? TensorType::kI32 : t.name.ends_with(".q_groups") ? TensorType::kI16 : TensorType::kF16);
  }
  test::save_tensors(folder / "output.safetensors", model.tensors, types);
}

void refused(const TinyModel& model, std::initializer_list<std::string_view> words) {
  const TempDir folder;
  save(model, folder);
  expect_error([&] { ModelDir dir(folder.path(), true); }, ErrorCode::kModel, words);
}

TEST(Exl2Dir, OpensWhereAllowed) {
  const TempDir folder;
  save(packed_model(), folder);
  const ModelDir dir(folder.path(), true);
  EXPECT_TRUE(dir.quantized());
  EXPECT_FALSE(dir.head_is_embedding());
  EXPECT_EQ(dir.vocab_rows(), 97u);
  EXPECT_EQ(dir.head().out, 97u);
  EXPECT_TRUE(dir.warnings().empty());
  dir.prefetch_layer(0);
  expect_error([&] { ModelDir plain(folder.path()); }, ErrorCode::kModel, {"already quantized", "exl2"});
}

TEST(Exl2Dir, IsToldByItsTensorsToo) {
  const TempDir folder;
  TinyModel model = packed_model();
  model.config.erase("quantization_config");
  save(model, folder);
  EXPECT_TRUE(ModelDir(folder.path(), true).quantized());
  expect_error([&] { ModelDir plain(folder.path()); }, ErrorCode::kModel, {"already quantized", "exl2"});
}

TEST(Exl2Dir, OnlyExl2IsAllowed) {
  TinyModel model = packed_model();
  model.config["quantization_config"]["quant_method"] = "gptq";
  refused(model, {"already quantized", "gptq"});
}

TEST(Exl2Dir, ALinearMayStayPlain) {
  const TempDir folder;
  TinyModel model = test::make_tiny_model();
  pack(model, kUp1);
  save(model, folder);
  const ModelDir dir(folder.path(), true);
  EXPECT_TRUE(dir.quantized());
  EXPECT_TRUE(dir.head_is_embedding());
  EXPECT_EQ(dir.load_linear(dir.linear(0, LinearKind::kUp)).rows(), 96u);
}

TEST(Exl2Dir, RefusesMissingAndMisshapenParts) {
  for (const char* suffix : {".q_scale", ".q_scale_max", ".q_groups", ".q_invperm"}) {
    const std::string name = kUp1 + std::string(suffix);
    TinyModel less = packed_model();
    less.erase(name);
    refused(less, {name, "missing"});
    TinyModel changed = packed_model();
    changed.at(name).shape.push_back(1);
    refused(changed, {name, "expected shape", "found"});
  }
  TinyModel none = packed_model();
  none.erase(kUp1 + std::string(".q_weight"));
  refused(none, {kUp1 + std::string(".weight"), "missing"});
  TinyModel narrow = packed_model();
  narrow.at(kUp1 + std::string(".q_weight")) = zeros(kUp1 + std::string(".q_weight"), {8, 72});  // 96: padded
  refused(narrow, {"q_weight", "[8,96]", "[8,72]"});
  TinyModel empty = packed_model();
  empty.at(kUp1 + std::string(".q_weight")) = zeros(kUp1 + std::string(".q_weight"), {0, 96});
  refused(empty, {kUp1, "no groups or no rows"});
  TinyModel head = packed_model();
  head.at("lm_head.q_scale") = zeros("lm_head.q_scale", {2, 12});
  refused(head, {"lm_head.q_scale", "[2,16]", "[2,12]"});
}

TEST(Exl2Dir, ABiasMayBePaddedLikeTheColumns) {
  TinyModel model = test::make_tiny_model("Qwen2ForCausalLM", {.heads = 3, .kv_heads = 1, .head_dim = 20}, true);
  const std::string key = "model.layers.0.self_attn.k_proj", name = key + ".bias";
  pack(model, key);
  TinyTensor& bias = model.at(name);
  ASSERT_EQ(bias.shape, std::vector<uint64_t>{20});
  const float last = bias.values[19];
  bias.shape = {32};
  bias.values.resize(32, 5.0f);
  {
    const TempDir folder;
    save(model, folder);
    const ModelDir dir(folder.path(), true);
    const std::vector<float> loaded = dir.load_bias(dir.linear(0, LinearKind::kK));
    ASSERT_EQ(loaded.size(), 20u);
    EXPECT_EQ(loaded[19], round_to_half(last));
  }
  for (const size_t wrong : {size_t{31}, size_t{64}}) {
    model.at(name) = zeros(name, {wrong});
    refused(model, {name, "[20]"});
  }
}

TEST(Exl2Dir, NormsOfHeadsMayBeRepeated) {
  TinyModel model = packed_model("Gemma3ForCausalLM");
  const std::string name = "model.layers.1.self_attn.k_norm.weight";
  const std::vector<float> row = model.at(name).values;
  TinyTensor& norm = model.at(name);
  norm.shape = {2, 16};
  norm.values.insert(norm.values.end(), row.begin(), row.end());
  {
    const TempDir folder;
    save(model, folder);
    const LayerNorms norms = ModelDir(folder.path(), true).load_norms(1);
    ASSERT_EQ(norms.k.size(), 16u);
    EXPECT_EQ(norms.k[15], 1.0f + round_to_half(row[15]));
  }
  model.at(name).values[20] += 1;
  refused(model, {name, "every head"});
}

}  // namespace
}  // namespace bw::model
