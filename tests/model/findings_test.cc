// All that is wrong with a model is found at once.
#include "model/findings.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "io/file_write.h"
#include "model/model_dir.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace bw::model {
namespace {

namespace fs = std::filesystem;
using io::TensorType;
using test::make_tiny_model;
using test::TempDir;
using test::TinyModel;

bool is_error(const Finding& f) { return f.severity == Finding::Severity::kError; }

// The findings, a line each: "error config.json: text".
std::string list_of(const fs::path& folder) {
  std::string lines;
  for (const Finding& f : check_model(folder).findings) {
    lines += std::string(is_error(f) ? "error " : "warning ") + f.where + ": " + f.what + "\n";
  }
  return lines;
}

std::string list_of(const TinyModel& model, TensorType type = TensorType::kF32) {
  const TempDir folder;
  model.save(folder.path(), type);
  return list_of(folder.path());
}

size_t lines(const std::string& text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

void expect_found(const std::string& list, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) EXPECT_NE(list.find(word), std::string::npos) << word << " in:\n" << list;
}

TEST(Findings, ASoundModelHasNone) {
  const TempDir folder;
  make_tiny_model().save(folder.path());
  const CheckedModel checked = check_model(folder.path());
  EXPECT_TRUE(checked.findings.empty());
  ASSERT_TRUE(checked.dir);
  EXPECT_EQ(checked.dir->vocab_rows(), 96u);
  EXPECT_TRUE(checked.dir->uses("model.norm.weight"));
}

TEST(Findings, AnErrorIsCutIntoPlaceTextAndAdvice) {
  const Finding f = finding_of(Error(ErrorCode::kIo, "/a/b/c.json: too short", "get it again"), "/a/b");
  EXPECT_TRUE(is_error(f));
  EXPECT_EQ(f.code, ErrorCode::kIo);
  EXPECT_EQ(f.where, "c.json");
  EXPECT_EQ(f.what, "too short");
  EXPECT_EQ(f.advice, "get it again");
  const Finding whole = finding_of(Error(ErrorCode::kModel, "/a/b: no weights"), "/a/b");
  EXPECT_EQ(whole.where + "|" + whole.what + "|" + whole.advice, "|no weights|");
  const Finding other = finding_of(Error(ErrorCode::kUsage, "--bpw 1: too little"), "/a/b");
  EXPECT_EQ(other.where + "|" + other.what, "|--bpw 1: too little");
}

TEST(Findings, BugsAreNotCollected) {
  std::vector<Finding> list;
  const Findings findings(list, "/a");
  EXPECT_THROW(findings.attempt([] { throw Error(ErrorCode::kInternal, "a bug"); }), Error);
  EXPECT_THROW(Findings().attempt([] { throw Error(ErrorCode::kModel, "the first"); }), Error);
  EXPECT_FALSE(findings.attempt([] { throw Error(ErrorCode::kModel, "bad"); }));
  EXPECT_EQ(list.size(), 1u);
}

TEST(Findings, SeveralWrongKeysOfTheConfigAreAllNamed) {
  TinyModel m = make_tiny_model();
  m.config["hidden_act"] = "relu";
  m.config["rope_scaling"] = {{"rope_type", "foo"}};
  m.config["rms_norm_eps"] = -1;
  m.config["tie_word_embeddings"] = "yes";
  m.config["use_bidirectional_attention"] = true;
  const std::string list = list_of(m);
  expect_found(list, {"error config.json: hidden_act", "rope_scaling: unknown rope type 'foo'", "rms_norm_eps",
                      "tie_word_embeddings", "use_bidirectional_attention"});
  EXPECT_EQ(lines(list), 5u) << list;
}

TEST(Findings, AConfigThatSaysNothingIsOneError) {
  TinyModel m = make_tiny_model();
  m.config = io::OrderedJson::array();
  EXPECT_EQ(lines(list_of(m)), 1u);
  m.config = io::OrderedJson::object();
  EXPECT_EQ(lines(list_of(m)), 1u) << list_of(m);
  m = make_tiny_model();
  m.config.erase("hidden_size");
  const std::string list = list_of(m);
  expect_found(list, {"hidden_size is missing"});
  EXPECT_EQ(lines(list), 1u) << list;
}

TEST(Findings, MissingAndMisshapenTensorsAreAllNamed) {
  TinyModel m = make_tiny_model();
  m.erase("model.layers.0.self_attn.k_proj.weight");
  m.erase("model.layers.1.input_layernorm.weight");
  m.erase("model.norm.weight");
  m.at("model.layers.1.mlp.up_proj.weight").shape = {64, 96};
  m.add("foo.bar", {3});
  const std::string list = list_of(m);
  expect_found(list, {"tensor model.layers.0.self_attn.k_proj.weight is missing",
                      "tensor model.layers.1.input_layernorm.weight is missing", "tensor model.norm.weight is missing",
                      "error model.safetensors: tensor model.layers.1.mlp.up_proj.weight: expected shape [96,64]",
                      "warning : 1 tensor is not used and will be dropped: foo.bar"});
  EXPECT_EQ(lines(list), 5u) << list;
}

TEST(Findings, AllBrokenShardsAreNamedAndNoTensorIsCalledMissingForIt) {
  const TempDir folder;
  TinyModel m = make_tiny_model();
  m.config["hidden_act"] = "relu";
  m.save(folder.path(), TensorType::kF16, 4);
  for (const char* shard : {"model-00001-of-00004.safetensors", "model-00003-of-00004.safetensors"}) {
    fs::resize_file(folder / shard, fs::file_size(folder / shard) - 8);
  }
  fs::remove(folder / "model-00004-of-00004.safetensors");
  const std::string list = list_of(folder.path());
  expect_found(list, {"error model-00001-of-00004.safetensors", "error model-00003-of-00004.safetensors",
                      "1 shard that is not there: model-00004-of-00004.safetensors", "config.json: hidden_act"});
  EXPECT_EQ(lines(list), 4u) << list;
}

TEST(Findings, WithoutWeightsTheConfigIsStillChecked) {
  const TempDir folder;
  TinyModel m = make_tiny_model();
  m.config["hidden_act"] = "relu";
  m.save(folder.path());
  fs::remove(folder / "model.safetensors");
  io::write_file(folder / "pytorch_model.bin", "");
  const std::string list = list_of(folder.path());
  expect_found(list, {"PyTorch weights", "hidden_act"});
  EXPECT_EQ(lines(list), 2u) << list;
}

TEST(Findings, TwoTensorsThatDifferInTwoShardsAreBothNamed) {
  const TempDir folder;
  TinyModel m = make_tiny_model();
  m.save(folder.path());
  test::TinyTensor a = m.at("model.norm.weight"), b = m.at("model.layers.0.input_layernorm.weight");
  a.values[3] += 1;
  b.values[0] += 1;
  test::save_tensors(folder / "old.safetensors", {a, b}, {TensorType::kF16, TensorType::kF16});
  const std::string list = list_of(folder.path());
  expect_found(list, {"model.norm.weight", "model.layers.0.input_layernorm.weight", "old.safetensors", "different"});
  EXPECT_EQ(lines(list), 2u) << list;
}

TEST(Findings, ValuesThatAreNoNumbersAreFoundInSampledRowsOfEveryTensor) {
  TinyModel m = make_tiny_model();
  m.at("model.layers.0.mlp.up_proj.weight").values[0] = NAN;               // the first row
  m.at("model.layers.1.mlp.gate_proj.weight").values.back() = INFINITY;    // the last
  m.at("model.embed_tokens.weight").values[13 * 64 + 5] = -INFINITY;       // 13 = 95 / 7
  m.at("model.layers.1.post_attention_layernorm.weight").values[7] = NAN;  // norms are read whole
  m.at("model.layers.0.mlp.gate_proj.weight").values[64 + 1] = NAN;        // left to the full check
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
    const std::string list = list_of(m, type);
    expect_found(list, {"model.layers.0.mlp.up_proj.weight: row 0, column 0 is nan",
                        "model.layers.1.mlp.gate_proj.weight: row 95, column 63 is inf",
                        "model.embed_tokens.weight: row 13, column 5 is -inf",
                        "model.layers.1.post_attention_layernorm.weight: row 0, column 7 is nan"});
    EXPECT_EQ(lines(list), 4u) << list;
  }
  TinyModel extra = make_tiny_model();
  extra.add("model.layers.0.self_attn.rotary_emb.inv_freq", {8});
  extra.tensors.back().values[0] = NAN;  // nobody reads it
  EXPECT_EQ(list_of(extra), "");
}

TEST(Findings, ACountOfLayersThatLiesIsOneError) {
  TinyModel m = make_tiny_model();
  m.config["num_hidden_layers"] = 16000;
  const std::string list = list_of(m);
  expect_found(list, {"num_hidden_layers 16000"});
  EXPECT_EQ(lines(list), 1u) << list;
}

}  // namespace
}  // namespace bw::model
