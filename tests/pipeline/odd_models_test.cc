// Models that are unusual or damaged: what is done with them, or how they are refused.
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "bitwright/bitwright.h"
#include "io/json.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

class OddModel : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(text_);
    for (int i = 0; i < 100; ++i) text << "Row " << i << ": the ferry leaves at noon, and the gulls follow it out.\n";
  }

  // Saves the model with a tokenizer of 288 tokens.
  void save(const test::TinyModel& m, io::TensorType type = io::TensorType::kF16) {
    m.save(model_, type);
    fs::copy_file(fs::path(BW_FIXTURES) / "models" / "llama" / "tokenizer.json", model_ / "tokenizer.json",
                  fs::copy_options::overwrite_existing);
  }

  static test::TinyModel tiny(test::TinySizes sizes = {}, bool head = false) {
    sizes.vocab = 288;
    return test::make_tiny_model("LlamaForCausalLM", sizes, head);
  }

  QuantizeOptions options(double bpw) {
    QuantizeOptions o;
    o.model = model_;
    o.output = out_;
    o.bpw = {bpw};
    o.calibration = {{text_}, 6, 40, 1};
    o.engine.progress = [this](const ProgressEvent& e) {
      if (e.kind == ProgressEvent::Kind::kWarning) warnings_ += e.text + "\n";
    };
    return o;
  }

  MeasureOptions measure_options() const {
    MeasureOptions o;
    o.model = model_;
    o.output = dir_ / "m.json";
    o.calibration = {{text_}, 6, 40, 1};
    return o;
  }

  // KLD of the written output against the model.
  double output_kld() const { return evaluate({out_, model_, text_, 4, 40, {}}).kld.value; }

  void expect_nothing_left() {
    EXPECT_FALSE(fs::exists(out_));
    EXPECT_FALSE(fs::exists(dir_ / "out.partial"));
  }

  test::TempDir dir_;
  fs::path model_ = dir_ / "model", text_ = dir_ / "text.txt", out_ = dir_ / "out";
  std::string warnings_;
};

TEST_F(OddModel, ANanWeightIsNamedWithItsPlace) {
  test::TinyModel m = tiny();
  m.at("model.layers.1.mlp.up_proj.weight").values[64 * 5 + 3] = NAN;
  save(m);
  expect_error([&] { quantize(options(5)); }, ErrorCode::kModel,
               {"model.layers.1.mlp.up_proj.weight", "row 5", "column 3", "nan"});
  expect_nothing_left();
}

TEST_F(OddModel, AnInfiniteNormIsRefusedBeforeTheWorkBegins) {
  test::TinyModel m = tiny();
  m.at("model.layers.1.input_layernorm.weight").values[2] = 1e5f;
  save(m, io::TensorType::kF32);
  QuantizeOptions o = options(5);
  bool worked = false;
  o.engine.progress = [&](const ProgressEvent& e) { worked |= e.stage == "measure"; };
  expect_error([&] { quantize(o); }, ErrorCode::kModel, {"model.layers.1.input_layernorm.weight", "100000", "f16"});
  EXPECT_FALSE(worked);
  expect_nothing_left();
}

TEST_F(OddModel, AnMlpThatIsNoMultipleOf32StaysInHalf) {
  test::TinySizes sizes;
  sizes.intermediate = 172;
  save(tiny(sizes));
  const QuantizeResult r = quantize(options(14)).at(0);
  EXPECT_EQ(r.planned_bytes, r.written_bytes);
  const InspectResult seen = inspect(out_);
  EXPECT_LE(seen.bpw_linears, 14);
  for (const PartReport& l : seen.linears) {
    if (l.key == "lm_head") continue;
    const bool mlp = l.key.find(".mlp.") != std::string::npos;
    EXPECT_EQ(l.layout == "F16", mlp) << l.key << " " << l.layout;
  }
  EXPECT_NE(warnings_.find("mlp.down_proj: 172"), std::string::npos) << warnings_;
  expect_error([&] { quantize(options(5)); }, ErrorCode::kUsage, {"--bpw 5", " to "});
}

TEST_F(OddModel, ColumnsThatAreNoMultipleOf32ArePadded) {
  test::TinySizes sizes;
  sizes.heads = 5;
  sizes.kv_heads = 1;
  sizes.head_dim = 32;  // q 160, k and v 32 columns; vocabulary 288
  sizes.hidden = 96;
  sizes.intermediate = 64;
  test::TinyModel m = tiny(sizes, true);
  save(m);
  QuantizeOptions o = options(8);
  o.head_bits = 8;
  quantize(o);
  EXPECT_LT(output_kld(), 1e-3);
}

TEST_F(OddModel, DeadChannelsAndZeroWeightsAreQuantized) {
  test::TinyModel m = tiny();
  for (float& v : m.at("model.layers.0.mlp.up_proj.weight").values)
    v = 0;  // the MLP's hidden state is 0: a dead Hessian
  for (size_t i = 0; i < 64; ++i) m.at("model.layers.1.input_layernorm.weight").values[i] = i < 3 ? 0.0f : 1.0f;
  save(m);
  quantize(options(5));
  EXPECT_TRUE(std::isfinite(output_kld()));
}

TEST_F(OddModel, OneRowOfFewTokensIsEnough) {
  save(tiny());
  QuantizeOptions o = options(5);
  o.calibration.rows = 1;
  o.calibration.length = 3;  // fewer tokens than channels
  quantize(o);
  EXPECT_TRUE(std::isfinite(output_kld()));
}

TEST_F(OddModel, TooManyOrTooLongRowsAreRefusedWithTheNumbers) {
  save(tiny());
  QuantizeOptions o = options(5);
  o.calibration.rows = 100000;
  expect_error([&] { quantize(o); }, ErrorCode::kUsage, {"text.txt", "100000 rows of 40", "3900000"});
  o.calibration.files.clear();
  o.calibration.rows = 0;
  expect_error([&] { quantize(o); }, ErrorCode::kUsage, {"0 calibration rows"});
  expect_nothing_left();
}

TEST_F(OddModel, ATokenBeyondTheEmbeddingIsNamed) {
  test::TinySizes sizes;
  sizes.vocab = 96;
  save(test::make_tiny_model("LlamaForCausalLM", sizes));
  expect_error([&] { quantize(options(5)); }, ErrorCode::kModel, {"text.txt", "96 embedding rows"});
}

TEST_F(OddModel, AForeignOrDamagedMeasurementIsRefused) {
  save(tiny());
  const MeasureOptions m = measure_options();
  measure(m);
  QuantizeOptions o = options(5);
  o.measurement = m.output;
  test::TinyModel other = tiny();
  other.tensors[0].values[0] += 1;
  save(other);
  expect_error([&] { quantize(o); }, ErrorCode::kModel, {"m.json", "another model"});
  save(tiny());
  std::ofstream(m.output) << "{}";
  expect_error([&] { quantize(o); }, ErrorCode::kModel, {"m.json", "measurement"});
  std::ofstream(m.output) << "{\"format\": \"bitwright-mea";
  expect_error([&] { quantize(o); }, ErrorCode::kModel, {"m.json", "JSON"});
  expect_nothing_left();
}

TEST_F(OddModel, AMeasurementWhoseEntriesAreNotTheModelsIsRefused) {
  save(tiny());
  const MeasureOptions m = measure_options();
  measure(m);
  const io::Json whole = io::load_json(m.output);
  QuantizeOptions o = options(5);
  o.measurement = m.output;
  const auto expect_refused = [&](const io::Json& json, std::initializer_list<std::string_view> words) {
    std::ofstream(m.output) << json.dump();
    expect_error([&] { quantize(o); }, ErrorCode::kModel, words);
  };
  io::Json cut = whole;
  cut["linears"].erase(13);
  expect_refused(cut, {"m.json", "13 linears", "14"});
  io::Json wide = whole;
  wide["linears"][3]["out"] = 128;
  expect_refused(wide, {"m.json", "model.layers.0.self_attn.o_proj"});
  io::Json plain = whole;
  plain["linears"][0]["candidates"] = io::Json::array();
  expect_refused(plain, {"m.json", "model.layers.0.self_attn.q_proj"});
  expect_nothing_left();
}

TEST_F(OddModel, NamesOfTheOutputAreTheReferencesWhateverThePrefix) {
  test::TinyModel m = tiny({}, true);
  m.move_to("language_model.model.", "language_model.");
  save(m);
  quantize(options(5));
  const io::ShardSet tensors(out_);
  for (const char* name : {"model.embed_tokens.weight", "model.norm.weight", "model.layers.1.mlp.down_proj.q_weight",
                           "model.layers.0.input_layernorm.weight", "lm_head.q_weight"}) {
    EXPECT_NE(tensors.find_entry(name), nullptr) << name;
  }
  EXPECT_LT(output_kld(), 0.1);
}

TEST_F(OddModel, RopeOfNewKeysStandsAtTheTopLevelOfTheOutput) {
  test::TinyModel m = tiny();
  m.config.erase("rope_theta");
  m.config["rope_parameters"] = {{"rope_type", "llama3"},   {"rope_theta", 250000.0},
                                 {"factor", 4.0},           {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 64}};
  save(m);
  quantize(options(5));
  const io::Json config = io::load_json(out_ / "config.json");
  EXPECT_EQ(config["rope_theta"], 250000.0);
  EXPECT_EQ(config["rope_scaling"]["rope_type"], "llama3");
  EXPECT_EQ(config["rope_scaling"]["factor"], 4.0);
  EXPECT_FALSE(config["rope_scaling"].contains("rope_theta"));
  EXPECT_LT(output_kld(), 0.1);
  m.config["rope_theta"] = 10000.0;  // contradicts
  save(m);
  QuantizeOptions o = options(5);
  o.overwrite = true;
  expect_error([&] { quantize(o); }, ErrorCode::kModel, {"rope_theta", "contradict"});
}

TEST_F(OddModel, GemmasTwoRopeBasesStandAtTheTopLevelOfTheOutput) {
  test::TinySizes sizes;
  sizes.vocab = 288;
  test::TinyModel m = test::make_tiny_model("Gemma3ForCausalLM", sizes);
  m.config.erase("rope_theta");
  m.config["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 1000000.0}}},
                                 {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 5000.0}}}};
  save(m);
  quantize(options(5));
  const io::Json config = io::load_json(out_ / "config.json");
  EXPECT_EQ(config["rope_theta"], 1000000.0);
  EXPECT_EQ(config["rope_local_base_freq"], 5000.0);
}

// What passes through a norm before it reaches the residual stream has no scale of its own.
TEST_F(OddModel, PricesDoNotDependOnAScaleThatANormTakesAway) {
  test::TinySizes sizes;
  sizes.vocab = 288;
  const auto prices = [&](float factor) {
    test::TinyModel m = test::make_tiny_model("Gemma3ForCausalLM", sizes);
    for (float& v : m.at("model.layers.0.self_attn.o_proj.weight").values) v *= factor;
    save(m, io::TensorType::kF32);
    MeasureOptions o = measure_options();
    o.engine.arithmetic = Arithmetic::kF32;
    measure(o);
    std::vector<double> list;
    const io::Json json = io::load_json(o.output);
    for (const io::Json& c : json["linears"][3]["candidates"]) list.push_back(c["price"]);
    return list;
  };
  const std::vector<double> one = prices(1), eight = prices(8);
  ASSERT_EQ(one.size(), eight.size());
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_NEAR(eight[i], one[i], 0.1 * one[i]) << i;  // scales are rounded to half
}

TEST_F(OddModel, AnOutputWithSomethingElseInItIsNotReplaced) {
  save(tiny());
  quantize(options(5));
  std::ofstream(out_ / "notes.docx") << "mine";
  QuantizeOptions o = options(6);
  o.overwrite = true;
  expect_error([&] { quantize(o); }, ErrorCode::kUsage, {"out", "notes.docx"});
  EXPECT_TRUE(fs::exists(out_ / "notes.docx"));
}

TEST_F(OddModel, ADirectoryThatAnotherRunBuildsIsLeftToIt) {
  save(tiny());
  QuantizeOptions inner = options(5);
  QuantizeOptions outer = options(6);
  bool met = false;
  outer.engine.progress = [&](const ProgressEvent& e) {
    if (e.stage != "quantize" || met) return;
    met = true;
    expect_error([&] { quantize(inner); }, ErrorCode::kIo, {"out.work", "another run"});
  };
  quantize(outer);
  EXPECT_TRUE(met);
  EXPECT_EQ(io::load_json(out_ / "config.json")["quantization_config"]["bits"], 6.0);
}

TEST_F(OddModel, ADanglingLinkIsNamed) {
  save(tiny());
  fs::create_symlink("../blobs/absent", model_ / "generation_config.json");
  expect_error([&] { quantize(options(5)); }, ErrorCode::kModel, {"generation_config.json", "link", "download"});
  expect_nothing_left();
}

TEST_F(OddModel, SideFilesTravelAndTheIndexDoesNot) {
  const test::TinyModel m = tiny();
  m.save(model_, io::TensorType::kBF16, 3);
  fs::copy_file(fs::path(BW_FIXTURES) / "models" / "llama" / "tokenizer.json", model_ / "tokenizer.json");
  for (const char* name : {"chat_template.jinja", "modeling_t.py", "LICENSE", "merges.txt", "generation_config.json",
                           "readme.md", "report.json", "report.original.json"}) {
    std::ofstream(model_ / name) << "{}";
  }
  fs::create_directories(model_ / ".git");
  fs::create_directories(model_ / "onnx");
  const QuantizeResult r = quantize(options(5)).at(0);
  EXPECT_EQ(r.planned_bytes, r.written_bytes);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(out_)) names.insert(entry.path().filename().string());
  EXPECT_EQ(names, (std::set<std::string>{"LICENSE", "README.md", "chat_template.jinja", "config.json",
                                          "generation_config.json", "merges.txt", "model.safetensors", "modeling_t.py",
                                          "readme.original.md", "report.html", "report.json", "report.original.json",
                                          "report.original.original.json", "tokenizer.json"}));
  QuantizeOptions again = options(5);
  again.overwrite = true;  // all of it is known as ours
  EXPECT_NO_THROW(quantize(again));
}

TEST_F(OddModel, TheOriginalsCardIsKeptAndItsLicenceTold) {
  save(tiny());
  const std::string card = "---\nlicense: apache-2.0\nbase_model: x\n---\n# Original\n";
  std::ofstream(model_ / "README.md") << card;
  quantize(options(5));
  EXPECT_EQ(test::read_bytes(out_ / "README.original.md"), card);
  const std::string ours = test::read_bytes(out_ / "README.md");
  EXPECT_NE(ours.find("license: \"apache-2.0\"\n"), std::string::npos) << ours;
  EXPECT_NE(ours.find("(README.original.md)"), std::string::npos);
}

TEST_F(OddModel, AReadOnlyModelBehindLinksWorksAndStaysAsItIs) {
  save(tiny());
  const fs::path links = dir_ / "snapshot";
  fs::create_directories(links);
  for (const auto& entry : fs::directory_iterator(model_))
    fs::create_symlink(entry.path(), links / entry.path().filename());
  fs::permissions(model_, fs::perms::owner_read | fs::perms::owner_exec);
  QuantizeOptions o = options(5);
  o.model = links;
  quantize(o);
  for (const auto& entry : fs::directory_iterator(out_)) EXPECT_FALSE(entry.is_symlink()) << entry.path();
  fs::permissions(model_, fs::perms::owner_all);
}

}  // namespace
}  // namespace bw
