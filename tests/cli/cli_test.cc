// The program itself: exit status, one line of error, nothing half-written.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/program.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::quoted;
using test::shell;

class Cli : public test::Program {};

TEST_F(Cli, QuantizeEvalInspectGenerate) {
  const Outcome q = quantize(model_, "--bpw 5");
  EXPECT_EQ(q.status, 0) << q.out;
  EXPECT_TRUE(q.last_line().starts_with("done: ")) << q.out;
  const Outcome e = run("eval " + quoted(out_) + " --ref " + quoted(model_) + " --text " + quoted(text_) +
                        " --rows 2 --length 32 --json " + quoted(dir_.path() / "eval.json"));
  EXPECT_EQ(e.status, 0) << e.out;
  EXPECT_TRUE(fs::exists(dir_.path() / "eval.json"));
  EXPECT_EQ(run("inspect --json " + quoted(out_)).status, 0);
  EXPECT_EQ(run("generate " + quoted(out_) + " --prompt tides -n 4").status, 0);
  const Outcome same = run("generate " + quoted(out_) + " --against " + quoted(out_) + " --prompt tides -n 4");
  EXPECT_EQ(same.last_line(), "done: the same 4 tokens") << same.out;
  const Outcome g = run("generate " + quoted(model_) + " --against " + quoted(out_) + " --prompt tides -n 60");
  EXPECT_EQ(g.status, 0) << g.out;
  EXPECT_NE(g.out.find("They differ "), std::string::npos) << g.out;
  EXPECT_NE(g.out.find("\n" + out_.string() + ":\n"), std::string::npos) << g.out;
}

TEST_F(Cli, FiguresGoToStandardOutputAsJson) {
  const Outcome o =
      run("eval " + quoted(model_) + " --text " + quoted(text_) + " --rows 2 --length 32 --json - 2>/dev/null");
  ASSERT_EQ(o.status, 0) << o.out;
  EXPECT_TRUE(o.out.starts_with("{\n \"tokens\": 62,")) << o.out;
  EXPECT_TRUE(o.out.ends_with("}\n")) << o.out;
}

TEST_F(Cli, HelpAndVersionSucceed) {
  EXPECT_EQ(run("--help").status, 0);
  EXPECT_EQ(run("--version").status, 0);
  for (const char* command : {"quantize", "measure", "eval", "inspect", "generate"}) {
    EXPECT_EQ(run(std::string(command) + " --help").status, 0) << command;
  }
}

TEST_F(Cli, UsageErrorsAreStatus2) {
  expect_refused(run("quantise x"), 2, {});
  expect_refused(run(""), 2, {});
  expect_refused(quantize(model_, "--bpw 4 --no-such-flag"), 2, {"no-such-flag"});
  expect_refused(quantize(model_, ""), 2, {"--bpw", "--size"});
  expect_refused(quantize(model_, "--bpw 4 --size 1GB"), 2, {"--bpw", "--size"});
  expect_refused(quantize(model_, "--bpw 4 --head-bits 7"), 2, {"--head-bits 7"});
  expect_refused(quantize(model_, "--size 12XB"), 2, {"--size", "12XB"});
  expect_refused(quantize(model_, "--bpw nan"), 2, {"--bpw"});
}

TEST_F(Cli, TheHeadsBitsAreANumberOrAuto) {
  for (const char* bad : {"7", "17", "-1", "6.5", "automatic", "''", "99999999999"}) {
    const Outcome o = quantize(model_, std::string("--bpw 5 --head-bits ") + bad);
    expect_refused(o, 2, {"--head-bits"});
    EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 1) << o.out;
  }
  const Outcome fixed = quantize(model_, "--bpw 5");
  EXPECT_EQ(fixed.status, 0) << fixed.out;
  const uintmax_t size = fs::file_size(out_ / "model.safetensors");
  const Outcome free = quantize(model_, "--bpw 5 --overwrite --head-bits auto");
  EXPECT_EQ(free.status, 0) << free.out;
  EXPECT_LE(fs::file_size(out_ / "model.safetensors"), size + 512);
  EXPECT_EQ(run("generate " + quoted(out_) + " --prompt tides -n 4").status, 0);
}

TEST_F(Cli, NumbersThatMakeNoSenseAreOneLine) {
  for (const char* option : {"--threads", "--calib-rows", "--calib-length", "--seed"}) {
    for (const char* bad : {"-1", "99999999999999999999999", "1.5", "x", "''"}) {
      const std::string more = std::string("--bpw 5 ") + option + " " + bad;
      const Outcome o = quantize(model_, more);
      expect_refused(o, 2, {option});
      EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 1) << o.out;
    }
  }
  for (const char* bad : {"3,,4", "3,", ",", "x", "3x", "3 4"}) {
    expect_refused(quantize(model_, std::string("--bpw '") + bad + "'"), 2, {"--bpw", bad, "no list of numbers"});
  }
  for (const char* bad : {"abc", "-1", "nan", "1e9"}) {
    expect_refused(quantize(model_, std::string("--bpw 5 --checkpoint ") + bad), 2, {"--checkpoint", bad, "86400"});
  }
  expect_refused(quantize(model_, "--bpw 5 --threads 1025"), 2, {"--threads", "1025", "1024"});
  const std::string evaluate = "eval " + quoted(model_) + " --text " + quoted(text_);
  for (const char* option :
       {"--rows -1", "--rows 0", "--length -1", "--length 1", "--length 99999999", "--threads -1"}) {
    expect_refused(run(evaluate + " " + option), 2, {std::string(option).substr(0, 6).c_str()});
  }
  const std::string generate = "generate " + quoted(model_) + " --prompt tides ";
  for (const char* option :
       {"--max-tokens -1", "--max-tokens 99999999999", "--top-k -1", "--temperature -1", "--temperature nan",
        "--top-p 0", "--top-p 1.1", "--top-p nan", "--min-p 2", "--system x"}) {
    expect_refused(run(generate + option), 2, {std::string(option).substr(0, 7).c_str()});
  }
}

TEST_F(Cli, EmptyNamesAreRefused) {
  expect_refused(run("plan ''"), 2, {"model", "empty"});
  expect_refused(run("measure " + quoted(model_) + " -o ''"), 2, {"--output", "empty"});
  expect_refused(quantize(model_, "--bpw 5 --calib ''"), 2, {"--calib", "empty"});
  EXPECT_EQ(run("generate " + quoted(model_) + " --prompt '' -n 2").status, 0);
}

TEST_F(Cli, AMeasurementIsNotWrittenOverADirectory) {
  const Outcome o = run("measure " + quoted(model_) + " -o " + quoted(dir_.path()));
  expect_refused(o, 2, {"it is a directory"});
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 1) << o.out;  // before any work
}

TEST_F(Cli, WhatAGitCloneHoldsInPlaceOfLargeFilesIsNamed) {
  const fs::path clone = dir_ / "clone";
  fs::copy(model_, clone, fs::copy_options::recursive);
  for (const char* file : {"tokenizer.json", "model.safetensors"}) {
    std::ofstream(clone / file) << "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n";
    expect_refused(run("plan " + quoted(clone)), 3, {file, "Git LFS pointer"});
    expect_refused(quantize(clone, "--bpw 5"), 3, {file, "Git LFS pointer", "git lfs pull"});
  }
}

TEST_F(Cli, CalibrationBeyondAllMemoryIsRefusedAtOnce) {
  const std::string start = "quantize " + quoted(model_) + " -o " + quoted(out_) + " --bpw 5 --calib-rows ";
  expect_refused(run(start + "1000000000000"), 2, {"--calib-rows", "1000000000000"});
  expect_refused(run(start + "4000000000"), 2, {"4000000000 calibration rows of 512 tokens", "4294967296"});
}

TEST_F(Cli, TheReachThatMeasureShowsCanBeAskedFor) {
  const fs::path measurement = dir_ / "m.json";
  const Outcome m = run("measure " + quoted(model_) + " -o " + quoted(measurement) + " --calib " + quoted(text_) +
                        " --calib-rows 4 --calib-length 32");
  ASSERT_EQ(m.status, 0) << m.out;
  const std::string words = "--bpw can be ";
  const size_t at = m.out.find(words);
  ASSERT_NE(at, std::string::npos) << m.out;
  std::string smallest, to, largest;
  std::istringstream(m.out.substr(at + words.size())) >> smallest >> to >> largest;
  for (const std::string& bpw : {smallest, largest}) {
    const Outcome q = quantize(model_, "--overwrite -m " + quoted(measurement) + " --bpw " + bpw);
    EXPECT_EQ(q.status, 0) << bpw << ": " << q.out;
  }
}

// A program that runs while the test goes on; its output goes to a file.
class Child {
 public:
  Child(const std::vector<std::string>& arguments, const fs::path& log) : log_(log) {
    std::vector<char*> argv;
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    fs::remove(log);
    pid_ = fork();
    if (pid_ != 0) return;
    const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    std::signal(SIGINT, SIG_DFL);
    execv(argv[0], argv.data());
    _exit(127);
  }
  std::string output() const {
    std::ifstream file(log_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Waits until `reached` is true, sends the signal, and waits for the end.
  template <typename Reached>
  Outcome stop(int signal, const Reached& reached) {
    wait_until(reached);
    send(signal);
    return end();
  }
  template <typename Reached>
  static void wait_until(const Reached& reached) {
    for (int i = 0; i < 20000 && !reached(); ++i) usleep(1000);
  }
  void send(int signal) const { kill(pid_, signal); }
  Outcome end() {
    int status = 0;
    waitpid(pid_, &status, 0);
    Outcome o;
    o.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    o.out = output();
    return o;
  }

 private:
  pid_t pid_ = 0;
  fs::path log_;
};

TEST_F(Cli, AnInterruptedRunSaysSoAndLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Child calibrating({BW_PROGRAM, "quantize", model_, "-o", out_, "--bpw", "5", "--calib-rows", "4000"}, dir_ / "log");
    const auto writes = [&] { return calibrating.output().find("self-calibration") != std::string::npos; };
    const Outcome o = calibrating.stop(signal, writes);
    expect_refused(o, 130, {"error: interrupted; ", "the same command begins anew"});
  }
  // The output is being built already.
  Child building(
      {BW_PROGRAM, "quantize", model_, "-o", out_, "--bpw", "5", "--calib-rows", "3000", "--calib-length", "60"},
      dir_ / "log");
  const Outcome o = building.stop(SIGINT, [&] { return fs::exists(dir_ / "out.partial"); });
  expect_refused(o, 130, {"error: interrupted; ", "the same command begins anew"});
}

TEST_F(Cli, KilledAtAnyMomentItGoesOnToTheSameBytes) {
  const auto arguments = [&](const fs::path& output) {
    return std::vector<std::string>{BW_PROGRAM,       "quantize", model_, "-o",           output, "--bpw",        "5",
                                    "--calib",        text_,      "-q",   "--calib-rows", "8",    "--checkpoint", "0",
                                    "--calib-length", "32"};
  };
  const auto begin = std::chrono::steady_clock::now();
  Child whole(arguments(dir_ / "whole"), dir_ / "log");
  ASSERT_EQ(whole.end().status, 0) << whole.output();
  const auto time = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  constexpr int kMoments = 16;
  int killed = 0;
  for (int i = 0; i < kMoments; ++i) {
    Child child(arguments(out_), dir_ / "log");
    usleep(static_cast<useconds_t>(time.count() * i / kMoments));
    killed += child.stop(SIGKILL, [] { return true; }).status == 1000 + SIGKILL;
    Child again(arguments(out_), dir_ / "log");
    const Outcome o = again.end();
    // Killed when all was done, it finds its own output there.
    EXPECT_TRUE(o.status == 0 || o.out.find("it exists already") != std::string::npos) << i << ": " << o.out;
    const Outcome same = shell("diff -r -x 'report.*' " + quoted(dir_ / "whole") + " " + quoted(out_));
    EXPECT_EQ(same.status, 0) << i << ": " << same.out;
    EXPECT_FALSE(fs::exists(dir_ / "out.work")) << i;
    EXPECT_FALSE(fs::exists(dir_ / "out.partial")) << i;
    fs::remove_all(out_);
  }
  EXPECT_GT(killed, kMoments / 2);
}

TEST_F(Cli, AModelThatShrinksMeanwhileEndsTheRunWithALine) {
  const fs::path model = copy_model();
  Child child({BW_PROGRAM, "quantize", model, "-o", out_, "--bpw", "5", "--calib", text_, "--calib-rows", "200",
               "--calib-length", "32"},
              dir_ / "log");
  Child::wait_until([&] { return child.output().find("gradients") != std::string::npos; });
  child.send(SIGSTOP);
  fs::resize_file(model / "model.safetensors", 0);
  child.send(SIGCONT);
  const Outcome o = child.end();
  EXPECT_EQ(o.status, 5) << o.out;
  EXPECT_TRUE(o.last_line().starts_with("error: a file that was being read has shrunk")) << o.out;
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_EQ(quantize(model, "--bpw 5").status, 3);
}

TEST_F(Cli, AJobGoesOnWhereNobodyReads) {
  const std::string command = quoted(BW_PROGRAM) + " quantize " + quoted(model_) + " -o " + quoted(out_) +
                              " --bpw 5 --calib " + quoted(text_) + " --calib-rows 4 --calib-length 32";
  shell("{ " + command + "; echo $? >" + quoted(dir_ / "status") + "; } 2>&1 | head -1");
  std::string status;
  std::ifstream(dir_ / "status") >> status;
  EXPECT_EQ(status, "5");  // the last words could not be said
  EXPECT_EQ(run("inspect " + quoted(out_)).status, 0);
  EXPECT_FALSE(fs::exists(dir_ / "out.work"));
}

TEST_F(Cli, ATargetOutOfReachIsRefusedWithTheRange) {
  expect_refused(quantize(model_, "--bpw 1.9"), 2, {"--bpw 1.9", " to "});
  expect_refused(quantize(model_, "--bpw 9.9"), 2, {"--bpw 9.9", " to "});
  expect_refused(quantize(model_, "--size 10kB"), 2, {"--size 10000", " to "});
}

TEST_F(Cli, AMissingOrDamagedModelIsStatus3) {
  expect_refused(quantize(dir_.path() / "nothing", "--bpw 4"), 3, {"nothing"});
  const fs::path cut = copy_model("cut");
  fs::resize_file(cut / "model.safetensors", fs::file_size(cut / "model.safetensors") / 2);
  expect_refused(quantize(cut, "--bpw 4"), 3, {"model.safetensors", "download"});
  const fs::path huge = copy_model("huge");
  std::ofstream(huge / "model.safetensors", std::ios::binary) << std::string("\0\0\0\0\0\0\0\x80{}", 10);
  expect_refused(quantize(huge, "--bpw 4"), 3, {"model.safetensors", "header"});
  const fs::path bare = copy_model("bare");
  fs::remove(bare / "tokenizer.json");
  expect_refused(quantize(bare, "--bpw 4"), 3, {"tokenizer.json"});
}

TEST_F(Cli, TextThatDoesNotServeIsRefused) {
  std::ofstream(text_).close();
  const Outcome empty = quantize(model_, "--bpw 4");
  EXPECT_TRUE(empty.status == 2 || empty.status == 3) << empty.out;
  expect_refused(empty, empty.status, {"calibration text.txt"});
  std::ofstream(text_) << "too short";
  expect_refused(quantize(model_, "--bpw 4"), 2, {"calibration text.txt", "124"});
  fs::remove(text_);
  expect_refused(quantize(model_, "--bpw 4"), 5, {"calibration text.txt"});
}

TEST_F(Cli, AnOutputThatIsNotOursIsLeftAlone) {
  fs::create_directories(out_);
  std::ofstream(out_ / "thesis.tex") << "years of work";
  const Outcome o = quantize(model_, "--bpw 5 --overwrite");
  EXPECT_EQ(o.status, 2) << o.out;
  EXPECT_TRUE(fs::exists(out_ / "thesis.tex"));
  const Outcome same =
      run("quantize " + quoted(model_) + " -o " + quoted(model_) + " --bpw 5 --calib " + quoted(text_));
  EXPECT_EQ(same.status, 2) << same.out;
  EXPECT_TRUE(fs::exists(model_ / "model.safetensors"));
}

TEST_F(Cli, OurOwnOutputIsReplacedOnlyWhenAsked) {
  EXPECT_EQ(quantize(model_, "--bpw 5").status, 0);
  const auto before = fs::last_write_time(out_ / "config.json");
  const Outcome refused = quantize(model_, "--bpw 5");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.last_line().find("--overwrite"), std::string::npos);
  EXPECT_EQ(fs::last_write_time(out_ / "config.json"), before);
  EXPECT_EQ(quantize(model_, "--bpw 5 --overwrite").status, 0);
}

TEST_F(Cli, AFullDiskIsStatus5AndLeavesNothing) {
  // A limit on file sizes stands for the full disk: writes fail in the same places.
  const Outcome o = shell("trap '' XFSZ; ulimit -f 8; " + quoted(BW_PROGRAM) + " quantize " + quoted(model_) + " -o " +
                          quoted(out_) + " --bpw 5 --calib " + quoted(text_) + " --calib-rows 4 --calib-length 32");
  expect_refused(o, 5, {"cannot write", "the same command begins anew"});
  const Outcome json =
      run("eval " + quoted(model_) + " --text " + quoted(text_) + " --rows 2 --length 32 --json /dev/full");
  EXPECT_EQ(json.status, 5) << json.out;
}

TEST_F(Cli, OddPathsWork) {
  const fs::path odd = dir_.path() / "my models" / "\u00fc 'x' \" T ";
  fs::create_directories(odd.parent_path());
  fs::copy(model_, odd, fs::copy_options::recursive);
  EXPECT_EQ(quantize(odd, "--bpw 5").status, 0);
  EXPECT_EQ(run("inspect " + quoted(odd)).status, 0);
}

}  // namespace
}  // namespace bw
