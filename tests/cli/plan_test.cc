// bitwright plan: a table for people, JSON for programs, the exit status of the job that it speaks of.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::quoted;
using test::shell;

class PlanCommand : public test::Program {
 protected:
  std::string plan(const fs::path& model, const std::string& more = {}) const {
    return "plan " + quoted(model) + " --calib " + quoted(text_) + " --calib-rows 4 --calib-length 32 " + more;
  }
  // stdout as JSON.
  nlohmann::json json(const fs::path& model, const std::string& more = {}) {
    const Outcome o = shell(quoted(BW_PROGRAM) + " " + plan(model, "--json " + more) + " 2>/dev/null");
    return nlohmann::json::parse(o.out, nullptr, false);
  }
};

TEST_F(PlanCommand, ShowsATableAndWritesNothing) {
  const Outcome o = run(plan(model_, "--bpw 5,6 -o " + quoted(out_)));
  EXPECT_EQ(o.status, 0) << o.out;
  for (const char* word : {"LlamaForCausalLM", "reach        --bpw", "5 bits per weight", "6 bits per weight", "memory",
                           "quantize: layers", "disk", "findings     0 errors, 1 warning", "hidden_last"}) {
    EXPECT_NE(o.out.find(word), std::string::npos) << word << " is not in:\n" << o.out;
  }
  EXPECT_TRUE(o.last_line().starts_with("done: ")) << o.out;
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_FALSE(fs::exists(dir_ / "out.partial"));
}

TEST_F(PlanCommand, JsonHasTheFigures) {
  const nlohmann::json j = json(model_, "--bpw 5");
  ASSERT_TRUE(j.is_object());
  ASSERT_EQ(j["findings"].size(), 1u);  // the fixture's own golden values
  EXPECT_EQ(j["findings"][0]["severity"], "warning");
  EXPECT_EQ(j["targets"][0]["bpw"], 5.0);
  EXPECT_GT(j["targets"][0]["bytes"], 0);
  EXPECT_LT(j["smallest_bpw"], j["largest_bpw"]);
  EXPECT_GE(j["memory_bytes"], j["memory_by_stage"]["quantize: layers"]);
  EXPECT_FALSE(json(model_)["memory_by_stage"].contains("quantize: layers"));
}

TEST_F(PlanCommand, EndsWithTheStatusOfTheFirstErrorAndListsAll) {
  const fs::path bad = copy_model();
  fs::remove(bad / "tokenizer.json");
  fs::resize_file(bad / "model.safetensors", fs::file_size(bad / "model.safetensors") - 4);
  std::ofstream(bad / "config.json") << "{\"architectures\": [\"FooForCausalLM\"]}";
  const Outcome o = run(plan(bad));
  expect_refused(o, 3, {"model", "(the first of 2 errors)"});
  for (const char* word : {"2 errors, 0 warnings", "error    model.safetensors", "-> download", "FooForCausalLM"}) {
    EXPECT_NE(o.out.find(word), std::string::npos) << word << " is not in:\n" << o.out;
  }
  const nlohmann::json j = json(bad);
  EXPECT_EQ(j["checked"], false);
  EXPECT_EQ(j["findings"].size(), 2u);
  EXPECT_EQ(j["findings"][0]["where"], "model.safetensors");
  expect_refused(run(plan(model_, "--bpw 1.9")), 2, {"--bpw 1.9", " to "});
  expect_refused(run(plan(dir_ / "nothing")), 3, {"nothing"});
}

TEST_F(PlanCommand, ManyFindingsAreCutForPeopleAndWholeInJson) {
  const fs::path bad = copy_model();
  std::ifstream in(bad / "config.json");
  nlohmann::json config = nlohmann::json::parse(in);
  config["hidden_size"] = 2 * config["hidden_size"].get<int>();
  std::ofstream(bad / "config.json") << config.dump();
  const std::string into_itself = "--bpw 5 -o " + quoted(bad);
  // Embedding, final norm, in each of two layers seven linears and two norms; the output; what is not used.
  EXPECT_EQ(json(bad, into_itself)["findings"].size(), 22u);
  const Outcome o = run(plan(bad, into_itself));
  EXPECT_EQ(o.status, 3);
  EXPECT_NE(o.out.find("and 2 more: see --json"), std::string::npos) << o.out;
  EXPECT_TRUE(fs::exists(bad / "model.safetensors"));
}

TEST_F(PlanCommand, OptionsAreCheckedAsOfQuantize) {
  expect_refused(run(plan(model_, "--bpw 4 --size 1GB")), 2, {"--size", "--bpw"});
  expect_refused(run(plan(model_, "--head-bits 7")), 2, {"--head-bits 7"});
  expect_refused(run(plan(model_, "--head-bits x")), 2, {"--head-bits x"});
  expect_refused(run(plan(model_, "--size 12XB")), 2, {"--size", "12XB"});
  EXPECT_EQ(run("plan --help").status, 0);
}

TEST_F(PlanCommand, WorksOnOddReadOnlyPathsUnderAnyLocale) {
  const fs::path odd = dir_.path() / "my models" / "\u00fc 'x' \" T ";
  fs::create_directories(odd.parent_path());
  fs::copy(model_, odd, fs::copy_options::recursive);
  fs::permissions(odd, fs::perms::owner_read | fs::perms::owner_exec);
  const Outcome o = shell("LC_ALL=C " + quoted(BW_PROGRAM) + " " + plan(odd, "--bpw 5 -o " + quoted(out_)));
  EXPECT_EQ(o.status, 0) << o.out;
  fs::permissions(odd, fs::perms::owner_all);
}

}  // namespace
}  // namespace bw
