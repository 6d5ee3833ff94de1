// The program as its users call it: through a shell, on tiny models.
#pragma once

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "support/temp_dir.h"

namespace bw::test {

namespace fs = std::filesystem;

struct Outcome {
  int status = -1;
  std::string out;  // stdout and stderr together
  std::string last_line() const {
    const size_t end = out.find_last_not_of('\n');
    if (end == std::string::npos) return {};
    const size_t begin = out.find_last_of('\n', end);
    return out.substr(begin == std::string::npos ? 0 : begin + 1,
                      end - (begin == std::string::npos ? 0 : begin + 1) + 1);
  }
};

// Runs a shell command line.
inline Outcome shell(const std::string& command) {
  Outcome o;
  FILE* pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) o.out.append(buffer.data(), n);
  const int status = pclose(pipe);
  o.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return o;
}

// As one word of a shell command.
inline std::string quoted(const fs::path& path) {
  std::string word = "'";
  for (const char c : path.string()) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

class Program : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(text_);
    for (int i = 0; i < 200; ++i)
      text << "Line " << i << " of a text about tides, harbours and the people who mend nets.\n";
  }

  Outcome run(const std::string& arguments) { return shell(quoted(BW_PROGRAM) + " " + arguments); }
  // quantize of a model with the usual options and `more`.
  Outcome quantize(const fs::path& model, const std::string& more) {
    return run("quantize " + quoted(model) + " -o " + quoted(out_) + " --calib " + quoted(text_) +
               " --calib-rows 4 --calib-length 32 " + more);
  }
  // A copy of the tiny model, to be spoiled.
  fs::path copy_model(const std::string& name = "model") {
    const fs::path to = dir_.path() / name;
    fs::copy(model_, to, fs::copy_options::recursive);
    return to;
  }
  // The command failed as it should: this status, one last line "error: ..." with these words, and no output left
  // behind.
  void expect_refused(const Outcome& o, int status, std::initializer_list<const char*> words) {
    EXPECT_EQ(o.status, status) << o.out;
    EXPECT_TRUE(o.last_line().starts_with("error: ")) << o.out;
    for (const char* word : words)
      EXPECT_NE(o.last_line().find(word), std::string::npos) << word << " is not in: " << o.last_line();
    EXPECT_FALSE(fs::exists(out_));
    EXPECT_FALSE(fs::exists(dir_.path() / "out.partial"));
  }

  TempDir dir_;
  fs::path model_ = fs::path(BW_FIXTURES) / "models" / "llama";
  fs::path text_ = dir_.path() / "calibration text.txt";
  fs::path out_ = dir_.path() / "out";
};

}  // namespace bw::test
