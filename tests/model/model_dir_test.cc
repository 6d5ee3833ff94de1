#include "model/model_dir.h"

#include <gtest/gtest.h>

#include "io/file_write.h"
#include "support/errors.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace bw::model {
namespace {

namespace fs = std::filesystem;
using io::TensorType;
using test::expect_error;
using test::make_tiny_model;
using test::TempDir;
using test::TinyModel;

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kQ0 = "model.layers.0.self_attn.q_proj";

// Saves the model in a new folder and opens it.
class Opened {
 public:
  explicit Opened(const TinyModel& model, TensorType type = TensorType::kF32, size_t shards = 1) {
    model.save(folder_.path(), type, shards);
    dir_.emplace(folder_.path());
  }
  const ModelDir& operator*() const { return *dir_; }
  const ModelDir* operator->() const { return &*dir_; }

 private:
  TempDir folder_;
  std::optional<ModelDir> dir_;
};

void refused(const TinyModel& model, std::initializer_list<std::string_view> words,
             TensorType type = TensorType::kF16) {
  const TempDir folder;
  model.save(folder.path(), type);
  expect_error([&] { ModelDir dir(folder.path()); }, ErrorCode::kModel, words);
}

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "|";
  return all;
}

class EveryArchitecture : public testing::TestWithParam<std::string> {};

TEST_P(EveryArchitecture, OpensAndLoads) {
  TinyModel model = make_tiny_model(GetParam(), {.head_dim = 32}, true);  // heads * head_dim is not hidden
  for (const size_t shards : {1, 3}) {
    const Opened dir(model, TensorType::kF32, shards);
    EXPECT_TRUE(dir->warnings().empty()) << joined(dir->warnings());
    EXPECT_EQ(dir->vocab_rows(), 96u);
    EXPECT_FALSE(dir->quantized());
    EXPECT_FALSE(dir->head_is_embedding());
    size_t parameters = 0;
    for (const auto& t : model.tensors) parameters += t.values.size();
    EXPECT_EQ(dir->parameters(), parameters);
    for (size_t layer = 0; layer < 2; ++layer) {
      for (size_t k = 0; k < kLinearsPerLayer; ++k) {
        const LinearInfo info = dir->linear(layer, static_cast<LinearKind>(k));
        const Matrix<float> w = dir->load_linear(info);
        const test::TinyTensor& expected = model.at(info.key + ".weight");
        EXPECT_EQ(expected.shape, (std::vector<uint64_t>{w.rows(), w.cols()}));
        EXPECT_TRUE(std::equal(expected.values.begin(), expected.values.end(), w.data())) << info.key;
        EXPECT_EQ(dir->load_bias(info), info.has_bias ? model.at(info.key + ".bias").values : std::vector<float>());
      }
      dir->prefetch_layer(layer);
      dir->release_layer(layer);
    }
    const Matrix<float> head = dir->load_linear(dir->head());
    EXPECT_EQ(head(95, 63), model.at("lm_head.weight").values.back());
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryArchitecture, testing::ValuesIn(supported_architectures()));

TEST(ModelDir, NormsHaveTheOffsetAdded) {
  TinyModel llama = make_tiny_model();
  const Opened a(llama);
  const LayerNorms norms = a->load_norms(1);
  EXPECT_EQ(norms.attention_in, llama.at("model.layers.1.input_layernorm.weight").values);
  EXPECT_EQ(norms.mlp_in, llama.at("model.layers.1.post_attention_layernorm.weight").values);
  EXPECT_TRUE(norms.attention_out.empty() && norms.mlp_out.empty() && norms.q.empty() && norms.k.empty());
  EXPECT_EQ(a->load_final_norm(), llama.at("model.norm.weight").values);

  TinyModel gemma = make_tiny_model("Gemma3ForCausalLM");
  const Opened b(gemma);
  const auto plus_one = [&](const std::string& name) {
    std::vector<float> v = gemma.at("model." + name + ".weight").values;
    for (float& x : v) x += 1.0f;
    return v;
  };
  const LayerNorms four = b->load_norms(0);
  EXPECT_EQ(four.attention_in, plus_one("layers.0.input_layernorm"));
  EXPECT_EQ(four.attention_out, plus_one("layers.0.post_attention_layernorm"));
  EXPECT_EQ(four.mlp_in, plus_one("layers.0.pre_feedforward_layernorm"));
  EXPECT_EQ(four.mlp_out, plus_one("layers.0.post_feedforward_layernorm"));
  EXPECT_EQ(four.q, plus_one("layers.0.self_attn.q_norm"));
  EXPECT_EQ(four.k, plus_one("layers.0.self_attn.k_norm"));
  EXPECT_EQ(b->load_final_norm(), plus_one("norm"));
}

TEST(ModelDir, EmbeddingRowsById) {
  TinyModel model = make_tiny_model();
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
    const Opened dir(model, type);
    const std::vector<uint32_t> ids = {95, 0, 7, 7};
    Matrix<float> rows(4, 64);
    dir->load_embedding(ids, rows.view());
    for (size_t i = 0; i < ids.size(); ++i) {
      for (size_t c = 0; c < 64; ++c) EXPECT_NEAR(rows(i, c), model.at(kEmbedding).values[ids[i] * 64 + c], 1e-3);
    }
    const std::vector<uint32_t> bad = {1, 96};
    Matrix<float> two(2, 64);
    expect_error([&] { dir->load_embedding(bad, two.view()); }, ErrorCode::kModel, {"token id 96", "96 rows"});
  }
}

TEST(ModelDir, SaysWhatTheDirectoryLacks) {
  const TempDir folder;
  expect_error([&] { ModelDir dir(folder / "none"); }, ErrorCode::kModel, {"none: no such directory"});
  expect_error([&] { ModelDir dir(folder.path()); }, ErrorCode::kModel, {folder.path().string(), "no config.json"});
  io::write_file(folder / "config.json", "{}");
  io::write_file(folder / "pytorch_model.bin", "");
  expect_error([&] { ModelDir dir(folder.path()); }, ErrorCode::kModel, {"PyTorch weights"});
  fs::remove(folder / "pytorch_model.bin");
  make_tiny_model().save(folder.path());
  fs::remove(folder / "config.json");
  fs::create_symlink("../../blobs/1", folder / "config.json");
  expect_error([&] { ModelDir dir(folder.path()); }, ErrorCode::kIo, {"config.json", "blob is missing"});
}

TEST(ModelDir, TheConfigMayHaveAMarkAndAnyLanguage) {
  const TempDir folder;
  TinyModel model = make_tiny_model();
  model.config["说明"] = "模型";
  model.save(folder.path());
  const std::string text = io::read_file(folder / "config.json");
  io::write_file(folder / "config.json", "\xef\xbb\xbf" + text);
  const ModelDir dir(folder.path());
  EXPECT_EQ(dir.raw_config()["说明"], "模型");
  EXPECT_EQ(dir.raw_config().begin().key(), "architectures");
}

TEST(ModelDir, TheHeadIsTheStoredOneOrTheEmbedding) {
  // Tied and not stored.
  const Opened tied(make_tiny_model());
  EXPECT_TRUE(tied->head_is_embedding());
  EXPECT_TRUE(tied->warnings().empty());
  EXPECT_EQ(tied->head().key, "lm_head");
  EXPECT_EQ(tied->head().out, 96u);
  Matrix<float> rows(1, 64);
  tied->load_embedding(std::vector<uint32_t>{95}, rows.view());
  EXPECT_EQ(tied->load_linear(tied->head())(95, 63), rows(0, 63));
  // Not stored, and the flag is missing or false.
  for (const bool missing : {true, false}) {
    TinyModel model = make_tiny_model();
    model.config["tie_word_embeddings"] = false;
    if (missing) model.config.erase("tie_word_embeddings");
    const Opened dir(model);
    EXPECT_TRUE(dir->head_is_embedding());
    EXPECT_NE(joined(dir->warnings()).find("the embedding is the head"), std::string::npos);
  }
  // Tied by the flag, yet another head is stored: it counts.
  TinyModel both = make_tiny_model("LlamaForCausalLM", {}, true);
  both.config["tie_word_embeddings"] = true;
  const Opened stored(both);
  EXPECT_FALSE(stored->head_is_embedding());
  EXPECT_NE(joined(stored->warnings()).find("the stored one is used"), std::string::npos);
  // An equal one is no head of its own.
  both.at("lm_head.weight").values = both.at(kEmbedding).values;
  const Opened equal(both);
  EXPECT_TRUE(equal->head_is_embedding());
  EXPECT_TRUE(equal->warnings().empty());
  // Another number of rows.
  TinyModel wrong = make_tiny_model("LlamaForCausalLM", {}, true);
  wrong.erase("lm_head.weight");
  wrong.add("lm_head.weight", {104, 64});
  refused(wrong, {"lm_head.weight", "[96,64]", "[104,64]"});
}

TEST(ModelDir, RefusesAMissingOrMisshapenTensor) {
  TinyModel model = make_tiny_model("Gemma3ForCausalLM");
  for (const auto& t : std::vector<test::TinyTensor>(model.tensors)) {
    TinyModel less = model;
    less.erase(t.name);
    refused(less, {t.name, "missing"});
    TinyModel changed = model;
    changed.at(t.name).shape.push_back(1);
    refused(changed, {t.name, "expected shape", "found"});
  }
  TinyModel integers = make_tiny_model();
  refused(integers, {"expected F16, BF16 or F32, found U8"}, TensorType::kU8);
}

TEST(ModelDir, TheConfigMustAgreeWithTheWeights) {
  TinyModel model = make_tiny_model();
  const auto changed = [&](const char* key, const io::OrderedJson& value) {
    TinyModel m = model;
    m.config[key] = value;
    return m;
  };
  refused(changed("num_hidden_layers", 3), {"num_hidden_layers 3", "layers up to 1"});
  refused(changed("num_hidden_layers", 1), {"num_hidden_layers 1", "layers up to 1"});
  refused(changed("hidden_size", 128), {kEmbedding, "[96,128]", "[96,64]"});
  refused(changed("head_dim", 32), {kQ0, "expected shape [128,64]", "found [64,64]"});
  refused(changed("num_key_value_heads", 4), {"k_proj", "[64,64]", "[32,64]"});
  refused(changed("intermediate_size", 100), {"gate_proj", "[100,64]", "[96,64]"});
  refused(changed("attention_bias", true), {std::string(kQ0) + ".bias", "missing"});
  TinyModel gap = make_tiny_model("LlamaForCausalLM", {.layers = 3});
  std::erase_if(gap.tensors, [](const auto& t) { return t.name.starts_with("model.layers.1."); });
  refused(gap, {"no tensor of layer 1"});
}

TEST(ModelDir, ABiasNobodyReadsMustBeZero) {
  TinyModel model = make_tiny_model();
  model.add(std::string(kQ0) + ".bias", {64}, 0.0f);
  EXPECT_FALSE(Opened(model)->linear(0, LinearKind::kQ).has_bias);
  model.at(std::string(kQ0) + ".bias").values[5] = 0.5f;
  refused(model, {std::string(kQ0) + ".bias", "has no bias there"});
}

TEST(ModelDir, RowsOfTheEmbeddingCount) {
  for (const size_t vocab : {88, 104}) {
    TinyModel model = make_tiny_model();
    model.config["vocab_size"] = vocab;
    const Opened dir(model);
    EXPECT_EQ(dir->vocab_rows(), 96u);
    EXPECT_EQ(dir->head().out, 96u);
    EXPECT_NE(joined(dir->warnings()).find("vocab_size " + std::to_string(vocab)), std::string::npos);
  }
  TinyModel beyond = make_tiny_model();
  beyond.config["bos_token_id"] = 96;
  beyond.config["eos_token_id"] = {95, 1000};
  beyond.config["pad_token_id"] = 4000;
  const Opened dir(beyond);
  EXPECT_FALSE(dir->config().bos);
  EXPECT_EQ(dir->config().eos, std::vector<uint32_t>{95});
  EXPECT_NE(joined(dir->warnings()).find("bos_token_id 96"), std::string::npos);
  EXPECT_NE(joined(dir->warnings()).find("eos_token_id 1000"), std::string::npos);
  TinyModel listed = make_tiny_model();
  listed.config["bos_token_id"] = {1};
  EXPECT_NE(joined(Opened(listed)->warnings()).find("bos_token_id is [1]"), std::string::npos);
}

TEST(ModelDir, OddDimensionsAreNoError) {
  const Opened dir(
      make_tiny_model("LlamaForCausalLM", {.hidden = 72, .intermediate = 172, .head_dim = 18, .vocab = 97}, true));
  EXPECT_EQ(dir->vocab_rows(), 97u);
  EXPECT_EQ(dir->linear(0, LinearKind::kDown).in, 172u);
}

TEST(ModelDir, RefusesWhatIsQuantizedAlready) {
  TinyModel gptq = make_tiny_model();
  gptq.at(std::string(kQ0) + ".weight").name = std::string(kQ0) + ".qweight";
  refused(gptq, {"already quantized", std::string(kQ0) + ".qweight", "give the original"});
  TinyModel scales = make_tiny_model();
  scales.add(std::string(kQ0) + ".weight_scale_inv", {1, 1});
  refused(scales, {"already quantized", "weight_scale_inv"});
  refused(make_tiny_model(), {"already quantized", "F8_E4M3"}, TensorType::kF8E4M3);
  TinyModel named = make_tiny_model();
  named.config["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}};
  refused(named, {"config.json", "already quantized", "awq"});
  TinyModel exl2 = make_tiny_model();
  exl2.config["quantization_config"] = {{"quant_method", "exl2"}};
  refused(exl2, {"config.json", "already quantized", "exl2"});
}

TEST(ModelDir, ExtraTensorsAreListedOnce) {
  TinyModel model = make_tiny_model();
  model.add("model.layers.0.self_attn.rotary_emb.inv_freq", {8});
  EXPECT_TRUE(Opened(model)->warnings().empty());
  for (const char* name : {"foo.bar", "a.b", "c", "d", "z"}) model.add(name, {3});
  const Opened dir(model);
  ASSERT_EQ(dir->warnings().size(), 1u);
  EXPECT_NE(dir->warnings()[0].find("5 tensors are not used and will be dropped: a.b, c, d, foo.bar, ..."),
            std::string::npos)
      << dir->warnings()[0];
}

TEST(ModelDir, FindsThePrefixByTheNames) {
  struct Case {
    std::string body, head;
  };
  for (const Case& c : {Case{"model.", ""}, Case{"", ""}, Case{"language_model.model.", "language_model."},
                        Case{"model.language_model.", ""}}) {
    TinyModel model = make_tiny_model("LlamaForCausalLM", {}, true);
    model.move_to(c.body, c.head);
    const Opened dir(model);
    EXPECT_TRUE(dir->warnings().empty()) << joined(dir->warnings());
    EXPECT_EQ(dir->stored_name(kEmbedding), c.body + "embed_tokens.weight");
    EXPECT_EQ(dir->head().key, c.head + "lm_head");
    EXPECT_EQ(dir->linear(1, LinearKind::kUp).key, c.body + "layers.1.mlp.up_proj");
    EXPECT_EQ(dir->load_linear(dir->head())(95, 63), model.tensors.back().values.back());
  }
  TinyModel other = make_tiny_model();
  other.move_to("transformer.", "");
  refused(other, {kEmbedding, "missing"});
}

TEST(ModelDir, RefusesOtherTowersByName) {
  TinyModel model = make_tiny_model();
  model.move_to("language_model.model.", "language_model.");
  model.add("vision_tower.encoder.layers.0.weight", {4});
  refused(model, {"vision_tower.encoder.layers.0.weight", "'vision_tower'"});
}

}  // namespace
}  // namespace bw::model
