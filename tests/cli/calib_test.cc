// Calibration on the command line: sources, weights, standard input, and rows that are kept.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "support/files.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;
using test::quoted;
using test::read_bytes;
using test::shell;

class CalibCommand : public test::Program {
 protected:
  void SetUp() override {
    Program::SetUp();
    fs::create_directories(texts_ / "deep");
    for (const char* name : {"b.txt", "a.txt", "deep/c.txt"}) {
      std::ofstream file(texts_ / name);
      for (int i = 0; i < 100; ++i) file << name << " has a line with the number " << i << ".\n";
    }
  }
  std::string command(const std::string& more) const { return "calib " + quoted(model_) + " " + more; }
  json mix(const std::string& more) {
    const Outcome o =
        shell(quoted(BW_PROGRAM) + " " + command("--json --calib-rows 6 --calib-length 16 " + more) + " 2>/dev/null");
    return json::parse(o.out, nullptr, false);
  }
  std::vector<int> rows(const json& j) {
    std::vector<int> n;
    for (const json& s : j["sources"]) n.push_back(s["rows"]);
    return n;
  }

  fs::path texts_ = dir_ / "my texts", rows_ = dir_ / "rows.jsonl";
};

TEST_F(CalibCommand, ShowsTheMix) {
  const Outcome o =
      run(command("--calib-rows 6 --calib-length 16 --calib " + quoted(texts_) + ":2 --calib " + quoted(text_)));
  EXPECT_EQ(o.status, 0) << o.out;
  for (const char* words :
       {"tokens", "66.7 %  my texts", "33.3 %  calibration text.txt", "6 rows of 16 tokens", "done: 6 rows"}) {
    EXPECT_NE(o.out.find(words), std::string::npos) << words << " is not in: " << o.out;
  }
  const json j = mix("--calib " + quoted(texts_) + ":2 --calib " + quoted(text_));
  EXPECT_EQ(rows(j), (std::vector<int>{4, 2}));
  EXPECT_EQ(j["sources"][0]["files"], 3);
  EXPECT_EQ(j["sources"][0]["texts"], 3);
  EXPECT_EQ(mix("--calib " + quoted(texts_ / "*.txt"))["sources"][0]["files"], 2);
}

TEST_F(CalibCommand, WeightsNeverTakeAFilesName) {
  fs::copy(text_, dir_ / "text:2");
  const json named = mix("--calib " + quoted(dir_ / "text:2") + " --calib " + quoted(text_));
  EXPECT_EQ(named["sources"][0]["name"], "text:2");
  const json weighed = mix("--calib " + quoted(dir_ / "text:2:5") + " --calib " + quoted(text_));
  EXPECT_EQ(weighed["sources"][0]["name"], "text:2");
  EXPECT_EQ(rows(weighed), (std::vector<int>{5, 1}));
  for (const char* bad : {"0", "-1", "inf", "nan"}) {
    expect_refused(run(command("--calib " + quoted(text_) + ":" + bad)), 2, {"--calib", "weight", "not above 0"});
  }
  expect_refused(run(command("--calib " + quoted(text_) + ":two")), 5, {"text.txt:two", "No such file"});
}

TEST_F(CalibCommand, StandardInputIsASource) {
  const std::string rest = command("--json --calib-rows 6 --calib-length 16 --calib - 2>/dev/null");
  const json file = mix("--calib " + quoted(text_));
  json piped = json::parse(shell("cat " + quoted(text_) + " | " + quoted(BW_PROGRAM) + " " + rest).out, nullptr, false);
  ASSERT_TRUE(piped.is_object());
  EXPECT_EQ(piped["sources"][0]["name"], "stdin.txt");
  EXPECT_EQ(piped["sources"][0]["tokens"], file["sources"][0]["tokens"]);
  const std::string lines = R"(printf '\n{"text": "%0500d"}\n{"text": "b"}\n' 7 | )";
  piped = json::parse(shell(lines + quoted(BW_PROGRAM) + " " + rest).out, nullptr, false);
  ASSERT_TRUE(piped.is_object());
  EXPECT_EQ(piped["sources"][0]["name"], "stdin.jsonl");
  EXPECT_EQ(piped["sources"][0]["texts"], 2);
  expect_refused(run(command("--calib - --calib - </dev/null")), 2, {"--calib -", "once"});
  expect_refused(run(command("--calib - </dev/null")), 3, {"--calib -: standard input is empty", "pipe a text"});
  expect_refused(shell("head -c 100 /dev/zero | " + quoted(BW_PROGRAM) + " " + command("--calib -")), 3,
                 {"stdin.txt", "zero byte"});
}

TEST_F(CalibCommand, RowsThatAreKeptQuantizeToTheSameBytes) {
  const std::string source = "--calib " + quoted(texts_) + ":2 --calib " + quoted(text_) + ":1 ";
  ASSERT_EQ(run(command(source + "--calib-rows 6 --calib-length 16 -o " + quoted(rows_))).status, 0);
  const std::string start = "quantize " + quoted(model_) + " --bpw 5 ";
  const Outcome whole = run(start + source + "--calib-rows 6 --calib-length 16 -o " + quoted(dir_ / "first"));
  ASSERT_EQ(whole.status, 0) << whole.out;
  const Outcome kept = run(start + "--calib " + quoted(rows_) + " -o " + quoted(dir_ / "second"));
  ASSERT_EQ(kept.status, 0) << kept.out;
  EXPECT_EQ(read_bytes(dir_ / "first" / "model.safetensors"), read_bytes(dir_ / "second" / "model.safetensors"));
  // The rows of the rows are the rows.
  const fs::path again = dir_ / "again.jsonl";
  ASSERT_EQ(run(command("--calib " + quoted(rows_) + " -o " + quoted(again))).status, 0);
  EXPECT_EQ(read_bytes(again), read_bytes(rows_));
  const json some = mix("--calib " + quoted(rows_));
  EXPECT_EQ(some["rows"], 6);
  expect_refused(run(command("--calib " + quoted(rows_) + " --calib-length 17")), 2, {"holds 6 rows of 16"});
  expect_refused(run("eval " + quoted(model_) + " --text " + quoted(rows_)), 3, {"rows.jsonl", "rows of calibration"});
}

TEST_F(CalibCommand, TheModelsOwnTextCanBeKept) {
  const std::string shape = "--calib-rows 3 --calib-length 16 ";
  const Outcome o = run(command(shape + "-o " + quoted(rows_)));
  ASSERT_EQ(o.status, 0) << o.out;
  EXPECT_NE(o.out.find("self-generated"), std::string::npos) << o.out;
  const std::string start = "quantize " + quoted(model_) + " --bpw 5 -q -o ";
  ASSERT_EQ(run(start + quoted(dir_ / "first") + " " + shape).status, 0);
  ASSERT_EQ(run(start + quoted(dir_ / "second") + " --calib " + quoted(rows_)).status, 0);
  EXPECT_EQ(read_bytes(dir_ / "first" / "model.safetensors"), read_bytes(dir_ / "second" / "model.safetensors"));
}

TEST_F(CalibCommand, NothingThatIsReadIsWrittenOver) {
  const std::string before = read_bytes(text_);
  const std::string source = "--calib-rows 2 --calib-length 16 --calib ";
  expect_refused(run(command(source + quoted(text_) + " -o " + quoted(text_))), 2, {"--output"});
  expect_refused(run(command(source + quoted(texts_) + " -o " + quoted(texts_ / "rows.jsonl"))), 2, {"--output"});
  expect_refused(run(command(source + quoted(dir_ / "*.txt") + " -o " + quoted(text_))), 2, {"--output"});
  expect_refused(run(command(source + quoted(texts_) + " -o " + quoted(text_))), 2,
                 {"it exists and is no file of calibration rows"});
  EXPECT_EQ(read_bytes(text_), before);
  EXPECT_EQ(run(command(source + quoted(text_) + " -o " + quoted(rows_))).status, 0);
  EXPECT_EQ(run(command(source + quoted(texts_) + " -o " + quoted(rows_))).status, 0);  // its own kind
  expect_refused(run(command(source + quoted(text_) + " -o " + quoted(dir_ / "no" / "where.jsonl"))), 5,
                 {"where.jsonl"});
}

}  // namespace
}  // namespace bw
