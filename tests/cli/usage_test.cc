// Wrong flags, commands and values: one line that says what was probably meant.
#include <gtest/gtest.h>

#include "cli/program.h"

namespace bw {
namespace {

using test::Outcome;
using test::quoted;
namespace fs = std::filesystem;

class Usage : public test::Program {
 protected:
  void expect_line(const std::string& arguments, std::initializer_list<const char*> words) {
    const Outcome o = run(arguments);
    expect_refused(o, 2, words);
    EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 1) << o.out;
  }
};

TEST_F(Usage, AMisspeltCommandIsToldTheRightOne) {
  expect_line("quantise x", {"'quantise' is no command", "did you mean quantize?", "bitwright --help"});
  expect_line("eavl x", {"did you mean eval?"});
  expect_line("frobnicate", {"'frobnicate' is no command", "plan", "quantize", "measure", "eval", "inspect"});
  EXPECT_EQ(run("frobnicate").out.find("completion"), std::string::npos);  // hidden
}

TEST_F(Usage, AMisspeltFlagIsToldTheRightOneWhateverElseIsMissing) {
  expect_line("quantize x -o y --bpw 4 --calb t.txt", {"--calb: quantize has no such option", "did you mean --calib?"});
  expect_line("quantize x --otput y --bpw 4", {"--otput", "did you mean --output?"});  // and --output is required
  expect_line("quantize --bwp 4.0 x -o y", {"--bwp", "did you mean --bpw?"});          // 4.0 would be the model
  expect_line("quantize x -o y --bwp=4.0", {"--bwp:", "did you mean --bpw?", "bitwright quantize --help"});
  expect_line("quantize x -o y -bpw 4", {"-bpw", "did you mean --bpw?"});
  expect_line("quantize x -o y --bpw 4 --rows 8",
              {"--rows: quantize has no such option", "did you mean --calib-rows?"});
  expect_line("eval x --txt y", {"--txt", "did you mean --text?"});
  expect_line("inspect x --JSON", {"--JSON", "did you mean --json?"});
  expect_line("--verison", {"--verison", "did you mean --version?"});
  expect_line("inspect x --frobnicate", {"--frobnicate", "inspect has no such option; see bitwright inspect --help"});
}

TEST_F(Usage, AMisspeltValueIsToldTheRightOne) {
  const std::string start = "quantize x -o y --bpw 4 ";
  expect_line(start + "--effort fats", {"--effort", "'fats' is none of fast, normal, best", "did you mean fast?"});
  expect_line(start + "--arithmetic BF16", {"--arithmetic", "did you mean bf16?"});
  expect_line(start + "--device cup", {"--device", "did you mean cpu?"});
  expect_line(start + "--log jsn", {"--log", "did you mean json?"});
  expect_line(start + "--head-bits atuo", {"--head-bits atuo", "did you mean auto?"});
  expect_line(start + "--effort 7", {"--effort", "'7' is none of fast, normal, best; see bitwright quantize --help"});
  expect_line("completion bsh", {"did you mean bash?"});
  expect_line("man quantise", {"did you mean quantize?"});
}

TEST_F(Usage, NoCommandIsToldWhichThereAre) { expect_line("", {"give a command: plan, quantize, measure", "--help"}); }

TEST_F(Usage, AFileIsNoDirectory) {
  expect_refused(run("plan " + quoted(model_ / "config.json")), 3, {"config.json: it is a file, not a directory"});
  expect_refused(run("quantize " + quoted(model_) + " -o " + quoted(text_) + " --bpw 4"), 2,
                 {"calibration text.txt: it exists and is no directory", "choose another -o"});
}

TEST_F(Usage, TheModelIsNeverWrittenToAndTheOutputIsNamed) {
  const fs::path model = copy_model();
  const std::string words = "quantize " + quoted(model) + " --bpw 4 -o ";
  expect_refused(run(words + quoted(model / "out")), 2, {"model/out: it lies inside the model directory"});
  expect_refused(run("measure " + quoted(model) + " -o " + quoted(model / "m.json")), 2,
                 {"model/m.json: it lies inside the model directory"});
  expect_refused(run(words + quoted(out_) + " --work " + quoted(model / "w")), 2, {"--work", "model/w"});
  EXPECT_FALSE(fs::exists(model / "out.work"));
}

TEST_F(Usage, WordsTooManyAreToldInTheirOrder) {
  expect_line("quantize x -o y --bpw 3 3.5 4", {"'3.5' '4' are words too many", "commas", "bitwright quantize --help"});
  expect_line("generate x --prompt The sea is", {"'sea' 'is' are words too many", "quotes"});
  expect_line("eval x x --ref y --text z", {"'x' is one word too many"});
}

TEST_F(Usage, AMisspeltFileIsToldTheRightOne) {
  const auto misspelt = dir_ / "calibration txet.txt";
  expect_refused(run("calib " + quoted(model_) + " --calib " + quoted(misspelt)), 5,
                 {"calibration txet.txt", "did you mean", "calibration text.txt?"});
}

TEST_F(Usage, EveryCommandHasHelpWithExamples) {
  for (const char* command :
       {"", "plan", "quantize", "measure", "eval", "inspect", "report", "calib", "generate", "chat", "convert"}) {
    const Outcome o = run(std::string(command) + " --help");
    EXPECT_EQ(o.status, 0) << command;
    EXPECT_NE(o.out.find("Examples:\n  bitwright "), std::string::npos) << o.out;
    EXPECT_EQ(o.out.find("UINT"), std::string::npos) << "an option does not say what its value is: " << o.out;
  }
}

}  // namespace
}  // namespace bw
