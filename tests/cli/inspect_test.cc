// What `inspect` shows of each kind of thing.
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace bw {
namespace {

using test::Outcome;
using test::quoted;

class InspectProgram : public test::Program {
 protected:
  nlohmann::json json_of(const std::filesystem::path& path) {
    const Outcome o = run("inspect --json " + quoted(path) + " 2>/dev/null");
    EXPECT_EQ(o.status, 0) << o.out;
    return nlohmann::json::parse(o.out, nullptr, false);
  }
  void expect_words(const std::filesystem::path& path, std::initializer_list<const char*> words) {
    const Outcome o = run("inspect --all " + quoted(path));
    EXPECT_EQ(o.status, 0) << o.out;
    for (const char* word : words) EXPECT_NE(o.out.find(word), std::string::npos) << word << " is not in: " << o.out;
  }
};

TEST_F(InspectProgram, AModelAsTablesAndAsJson) {
  ASSERT_EQ(quantize(model_, "--bpw 5").status, 0);
  expect_words(out_, {"LlamaForCausalLM  2 layers, hidden 64", "linears and head", "module", "q_proj", "64 x 64",
                      "embed_tokens", "layer", "model.layers.1.mlp.down_proj", "b64g32"});
  const nlohmann::json j = json_of(out_);
  EXPECT_EQ(j["kind"], "model");
  EXPECT_EQ(j["linears"].size(), 15u);
  EXPECT_EQ(j["linears"][8]["layer"], 1);
  EXPECT_EQ(j["linears"][8]["module"], "k_proj");
  EXPECT_TRUE(j["linears"][14]["layer"].is_null());
  EXPECT_EQ(j["embedding"]["module"], "embed_tokens");
  EXPECT_LE(j["bpw_linears"], 5.0);
}

TEST_F(InspectProgram, AFileAsTablesAndAsJson) {
  expect_words(model_ / "model.safetensors", {"tensors, ", "input_layernorm", "down_proj", "F16"});
  const nlohmann::json j = json_of(model_ / "model.safetensors");
  EXPECT_EQ(j["kind"], "file");
  EXPECT_EQ(j["parts"].size(), j["tensors"]);
  EXPECT_DOUBLE_EQ(j["bpw"], 16);
}

TEST_F(InspectProgram, AMeasurementAsTablesAndAsJson) {
  const auto file = dir_ / "m.json";
  ASSERT_EQ(run("measure " + quoted(model_) + " -o " + quoted(file) + " --calib " + quoted(text_) +
                " --calib-rows 2 --calib-length 32")
                .status,
            0);
  expect_words(file, {"2 rows of 32 tokens", "--bpw can be", "price least", "lm_head", "model.layers.0.mlp.up_proj"});
  const nlohmann::json j = json_of(file);
  EXPECT_EQ(j["kind"], "measurement");
  EXPECT_EQ(j["by"], "bitwright");
  EXPECT_EQ(j["parts"].size(), 15u);
  EXPECT_GT(j["parts"][0]["layouts"].size(), 3u);
}

TEST_F(InspectProgram, AWorkFolderAsTableAndAsJson) {
  const auto work = dir_ / "work";  // of a job that has just begun
  std::filesystem::create_directory(work);
  std::ofstream(work / ".bitwright-work") << "";
  expect_words(work, {"a work folder of", "measure", "waiting"});
  const nlohmann::json j = json_of(work);
  EXPECT_EQ(j["kind"], "job");
  EXPECT_EQ(j["steps"][0]["step"], "measure");
  EXPECT_EQ(j["steps"][0]["state"], "waiting");
  EXPECT_TRUE(j["steps"][0]["total"].is_null());
}

TEST_F(InspectProgram, WhatIsNothingIsOneLine) {
  expect_refused(run("inspect " + quoted(dir_ / "nothing")), 5, {"nothing", "no such file"});
  expect_refused(run("inspect " + quoted(text_)), 3, {"calibration text.txt", "safetensors"});
}

}  // namespace
}  // namespace bw
