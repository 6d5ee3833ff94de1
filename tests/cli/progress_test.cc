// Progress as it is seen: on terminals wide and narrow, in pipes, as JSON.
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "cli/pty.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;
using test::quoted;
using test::Screen;
using test::shell;

using Environment = std::vector<std::pair<std::string, std::string>>;

class ProgressOf : public test::Program {
 protected:
  // A quantization that takes some tenths of a second.
  std::vector<std::string> arguments(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"quantize", model_, "-o",           out_, "--bpw",          "5",
                                      "--calib",  text_,  "--calib-rows", "80", "--calib-length", "60"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string command(const std::string& more) const {
    std::string line = quoted(BW_PROGRAM);
    for (const std::string& word : arguments()) line += " " + test::quoted(word);
    return line + " " + more;
  }
  Screen on_terminal(unsigned short columns, const Environment& environment, std::vector<std::string> more = {}) {
    const Outcome o = test::run_on_terminal(arguments(more), columns, environment);
    EXPECT_EQ(o.status, 0) << o.out;
    return Screen(o.out);
  }
  // Each line of stderr as an object.
  static std::vector<json> objects(const std::string& text) {
    std::vector<json> all;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      all.push_back(json::parse(line, nullptr, false));
      EXPECT_TRUE(all.back().is_object()) << line;
    }
    return all;
  }
};

TEST_F(ProgressOf, ATerminalHasALineThatIsWrittenOver) {
  const Screen screen = on_terminal(80, {{"TERM", "xterm"}, {"LANG", "en_US.UTF-8"}});
  EXPECT_LE(screen.widest, 79u);
  ASSERT_FALSE(screen.drawn.empty());
  std::set<std::string> stages;
  for (const std::string& line : screen.drawn) {
    EXPECT_FALSE(find_invalid_utf8(line)) << line;
    EXPECT_NE(line.find("ETA "), std::string::npos) << line;
    EXPECT_NE(line.find(" %"), std::string::npos) << line;
    EXPECT_TRUE(line.find("\u2591") != std::string::npos || line.find("\u2588") != std::string::npos) << line;
    EXPECT_NE(line.find("MB"), std::string::npos) << line;
    stages.insert(line.substr(0, line.find(' ')));
  }
  EXPECT_TRUE(stages.contains("gradients") && stages.contains("quantize"));
  // What stays: one line a stage, then the result.
  size_t done = 0;
  for (const std::string& line : screen.lines) {
    EXPECT_EQ(line.find("ETA"), std::string::npos) << line;
    done += line.find("  done in 0:0") != std::string::npos;
  }
  EXPECT_EQ(done, 3u);
  EXPECT_TRUE(screen.lines.back().starts_with("done: wrote ")) << screen.lines.back();
  EXPECT_GT(screen.colours, 0u);
}

TEST_F(ProgressOf, FortyColumnsAreEnough) {
  const Screen screen = on_terminal(40, {{"TERM", "xterm"}});
  EXPECT_LE(screen.widest, 39u);
  ASSERT_FALSE(screen.drawn.empty());
  for (const std::string& line : screen.drawn) {
    EXPECT_NE(line.find("ETA "), std::string::npos) << line;
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << line;  // this locale has ASCII only
  }
}

TEST_F(ProgressOf, ColoursCanBeTurnedOff) {
  EXPECT_EQ(on_terminal(80, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}).colours, 0u);
  EXPECT_GT(on_terminal(80, {{"TERM", "xterm"}, {"NO_COLOR", ""}}, {"--overwrite"}).colours, 0u);
  const Outcome refused = test::run_on_terminal({"quantise"}, 80, {{"TERM", "xterm"}});
  EXPECT_TRUE(refused.out.starts_with("\x1b[31merror: \x1b[0m'quantise' is no command; did you mean quantize?"))
      << refused.out;
}

TEST_F(ProgressOf, ADumbTerminalHasPlainLines) {
  const Outcome o = test::run_on_terminal(arguments(), 80, {{"TERM", "dumb"}});
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out.find('\x1b'), std::string::npos);
  EXPECT_TRUE(Screen(o.out).drawn.empty());
}

TEST_F(ProgressOf, APipeHasPlainLinesNoMoreThanElevenAStage) {
  const Outcome o = shell(command(""));
  EXPECT_EQ(o.status, 0) << o.out;
  EXPECT_EQ(o.out.find_first_of("\x1b\r"), std::string::npos);
  size_t n = 0;
  for (size_t at = 0; (at = o.out.find("\ngradients ", at)) != std::string::npos; ++at) ++n;
  EXPECT_GE(n, 3u);
  EXPECT_LE(n, 11u);
  EXPECT_NE(o.out.find("quantize 100 %"), std::string::npos) << o.out;
}

TEST_F(ProgressOf, QuietLeavesWarningsAndTheLastLine) {
  expect_refused(run("quantize x -o y --bpw 4 -q -v"), 2, {"--quiet", "--verbose"});
  const Outcome o = shell(command("-q 2>&1 >/dev/null"));
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 2) << o.out;
  EXPECT_TRUE(o.out.starts_with("warning: plan: ")) << o.out;  // the fixture's golden values are not used
  EXPECT_TRUE(o.last_line().starts_with("done: ")) << o.out;
}

TEST_F(ProgressOf, VerboseSaysHowLongEachLayerTook) {
  const Outcome o = shell(command("-v"));
  EXPECT_EQ(o.status, 0);
  for (const char* line : {"gradients: layer 1 took ", "gradients: back to layer 0 took ", "quantize: head took "}) {
    EXPECT_NE(o.out.find(line), std::string::npos) << line << " is not in: " << o.out;
  }
}

TEST_F(ProgressOf, JsonIsOneObjectALine) {
  const Outcome o = shell(command("--log json 2>&1 >/dev/null"));
  EXPECT_EQ(o.status, 0) << o.out;
  std::set<std::string> stages, ended;
  const std::vector<json> all = objects(o.out);
  for (const json& j : all) {
    if (j["event"] != "progress") continue;
    stages.insert(j["stage"]);
    EXPECT_GE(j["done"], 0.0);
    EXPECT_LE(j["done"], j["total"]);
    EXPECT_GT(j["rss_bytes"], 1000000);
    ASSERT_TRUE(j["eta_s"].is_null() || j["eta_s"].is_number()) << j;
    if (j["done"] == j["total"]) {
      ended.insert(j["stage"]);
      EXPECT_EQ(j["eta_s"], 0);
    }
  }
  EXPECT_EQ(stages, (std::set<std::string>{"compile", "gradients", "quantize"}));
  EXPECT_EQ(ended, stages);
  EXPECT_EQ(all.back()["event"], "result");
  EXPECT_EQ(all.back()["status"], 0);
  EXPECT_TRUE(all.back()["text"].get<std::string>().starts_with("wrote "));
}

TEST_F(ProgressOf, JsonHasNotesWarningsAndErrors) {
  // A chat template that cannot be read is a warning; the rows go beyond the model's positions: another.
  const fs::path model = copy_model();
  std::ofstream(model / "tokenizer_config.json") << R"({"chat_template": "{% nonsense"})";
  const Outcome o = shell(quoted(BW_PROGRAM) + " measure " + quoted(model) + " -o " + quoted(dir_ / "m.json") +
                          " --calib " + quoted(text_) + " --calib-rows 2 --calib-length 20 --log=json 2>&1 >/dev/null");
  EXPECT_EQ(o.status, 0) << o.out;
  size_t warnings = 0;
  for (const json& j : objects(o.out))
    warnings += j["event"] == "warning" && j["text"].is_string() && j["stage"] == "tokenize";
  EXPECT_EQ(warnings, 1u) << o.out;
  for (const char* bad : {"quantize x --log json", "quantise x --log=json", "measure /nowhere -o x.json --log json"}) {
    const Outcome refused = run(bad);
    const std::vector<json> lines = objects(refused.out);
    ASSERT_EQ(lines.size(), 1u) << refused.out;
    EXPECT_EQ(lines[0]["event"], "error");
    EXPECT_EQ(lines[0]["status"], refused.status);
    EXPECT_FALSE(lines[0]["text"].get<std::string>().empty());
  }
}

TEST_F(ProgressOf, NamesThatAreNoUtf8AreNoBrokenJson) {
  const Outcome o = run("measure \"$(printf '/no\\377where')\" -o x.json --log json");
  EXPECT_EQ(objects(o.out).size(), 1u) << o.out;
}

TEST_F(ProgressOf, HelpFitsTheTerminal) {
  for (const unsigned short columns : {40, 80, 120}) {
    const Outcome o = test::run_on_terminal({"quantize", "--help"}, columns, {{"TERM", "xterm"}});
    EXPECT_EQ(o.status, 0);
    size_t options = 0;
    for (const std::string& line : Screen(o.out).lines) {
      if (line.find("bitwright quantize") != std::string::npos) continue;  // command lines stay whole
      EXPECT_LE(cli::width_of(line), columns) << line;
      options += line.starts_with("  -");
    }
    EXPECT_GT(options, 15u);
  }
}

TEST_F(ProgressOf, AFailureEndsWithItsLine) {
  std::vector<std::string> bad = arguments();
  bad[7] = dir_ / "absent.txt";
  const Outcome o = test::run_on_terminal(bad, 60, {{"TERM", "xterm"}});
  EXPECT_EQ(o.status, 5);
  EXPECT_TRUE(Screen(o.out).lines.back().starts_with("error: ")) << o.out;
}

}  // namespace
}  // namespace bw
