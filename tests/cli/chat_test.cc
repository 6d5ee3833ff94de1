// Conversations: lines through a pipe, and a person at a terminal.
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::quoted;

class ChatProgram : public test::Program {
 protected:
  void SetUp() override {
    chat_ = copy_model();
    std::ofstream(chat_ / "chat_template.jinja")
        << "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] ";
    nlohmann::json config = nlohmann::json::parse(std::ifstream(chat_ / "config.json"));
    config.erase("eos_token_id");
    std::ofstream(chat_ / "config.json") << config;
  }
  Outcome chat(const std::string& input, const std::string& arguments) {
    return test::shell("printf '%b' " + test::quoted(input) + " | " + quoted(BW_PROGRAM) + " chat " + quoted(chat_) +
                       " " + arguments);
  }
  static std::vector<nlohmann::json> objects(const Outcome& o) {
    std::vector<nlohmann::json> found;
    std::istringstream lines(o.out);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('{')) found.push_back(nlohmann::json::parse(line));
    }
    return found;
  }

  fs::path chat_;
};

TEST_F(ChatProgram, EachLineOfAPipeIsAMessageOfOneConversation) {
  const Outcome o = chat("one\\n\\ntwo\\n/reset\\none\\nthree \\\\\\nlines", "--json -n 4 --seed 3");
  EXPECT_EQ(o.status, 0) << o.out;
  EXPECT_EQ(o.last_line(), "done: 4 answers, 16 tokens");
  const auto answers = objects(o);
  ASSERT_EQ(answers.size(), 4u) << o.out;
  EXPECT_EQ(answers[0]["message"], "one");
  EXPECT_EQ(answers[0]["reused_tokens"], 0);
  EXPECT_EQ(answers[0]["ending"], "max_tokens");
  EXPECT_EQ(answers[1]["message"], "two");
  EXPECT_GT(answers[1]["prompt_tokens"], answers[0]["prompt_tokens"]);
  EXPECT_GT(answers[1]["reused_tokens"], 0);
  EXPECT_EQ(answers[2]["answer"], answers[0]["answer"]);
  EXPECT_EQ(answers[3]["message"], "three \nlines");
}

TEST_F(ChatProgram, AnswersAloneGoToStdout) {
  const Outcome o = chat("one\\n/exit\\ntwo\\n", "-n 4 --temperature 0 2>/dev/null");
  EXPECT_EQ(o.status, 0);
  const Outcome json = chat("one\\n", "-n 4 --temperature 0 --json");
  ASSERT_EQ(objects(json).size(), 1u) << json.out;
  EXPECT_EQ(o.out, objects(json)[0]["answer"].get<std::string>() + "\n");
}

TEST_F(ChatProgram, NothingSaidIsNoAnswer) {
  const Outcome o = chat("", "-n 4");
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, "done: 0 answers, 0 tokens\n");
}

TEST_F(ChatProgram, WhatCannotBeIsOneLine) {
  fs::remove(chat_ / "chat_template.jinja");
  expect_refused(chat("one\\n", "-n 4"), 3, {"no chat template"});
  expect_refused(run("chat"), 2, {"model"});
  expect_refused(run("chat " + quoted(chat_) + " --context -1"), 2, {"--context"});
}

// The program on a terminal whose keys are pressed by the test.
class Keyboard {
 public:
  explicit Keyboard(const std::vector<std::string>& arguments) {
    pid_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ != 0) return;
    setenv("NO_COLOR", "1", 1);
    std::vector<char*> argv = {const_cast<char*>(BW_PROGRAM)};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execv(BW_PROGRAM, argv.data());
    _exit(127);
  }
  ~Keyboard() {
    kill(pid_, SIGKILL);
    close(terminal_);
  }
  void press(const std::string& keys) {
    seen_ = out_.size();
    ASSERT_EQ(write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  // Waits until what was written since the last keys fulfils it; false: it ended before, or a minute has gone.
  bool wait_until(const std::function<bool(const std::string&)>& fulfilled) {
    while (!fulfilled(out_.substr(seen_))) {
      pollfd ready{terminal_, POLLIN, 0};
      std::array<char, 4096> buffer;
      if (poll(&ready, 1, 60000) <= 0) return false;
      const ssize_t n = read(terminal_, buffer.data(), buffer.size());
      if (n <= 0) return false;
      out_.append(buffer.data(), static_cast<size_t>(n));
    }
    return true;
  }
  bool wait_for(const std::string& text) {
    return wait_until([&](const std::string& out) { return out.find(text) != std::string::npos; });
  }
  int end() {
    wait_until([](const std::string&) { return false; });
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const std::string& out() const { return out_; }

 private:
  pid_t pid_ = 0;
  int terminal_ = -1;
  std::string out_;
  size_t seen_ = 0;
};

TEST_F(ChatProgram, AtATerminalCtrlCStopsTheAnswerAndExitEnds) {
  Keyboard keys({"chat", chat_, "-n", "200000", "--context", "200000", "--seed", "2"});
  ASSERT_TRUE(keys.wait_for("\n> ")) << keys.out();
  keys.press("Tell me all.\n");
  ASSERT_TRUE(keys.wait_until([](const std::string& out) { return out.size() > 60; })) << keys.out();
  keys.press("\x03");
  ASSERT_TRUE(keys.wait_for("(stopped)")) << keys.out();
  ASSERT_TRUE(keys.wait_for("> ")) << keys.out();
  keys.press("/exit\n");
  EXPECT_EQ(keys.end(), 0) << keys.out();
  EXPECT_NE(keys.out().find("done: 1 answer, "), std::string::npos) << keys.out();
}

TEST_F(ChatProgram, AtATerminalCtrlCAtThePromptLeaves) {
  Keyboard keys({"chat", chat_, "-n", "4"});
  ASSERT_TRUE(keys.wait_for("\n> ")) << keys.out();
  keys.press("\x03");
  EXPECT_EQ(keys.end(), 130) << keys.out();
  EXPECT_NE(keys.out().find("error: interrupted"), std::string::npos) << keys.out();
}

TEST_F(ChatProgram, AtATerminalAConversationThatIsTooLongCanBeginAnew) {
  Keyboard keys({"chat", chat_, "-n", "4", "--context", "40"});
  ASSERT_TRUE(keys.wait_for("\n> ")) << keys.out();
  keys.press("This is a message that is far too long for so small a context as this one has.\n");
  ASSERT_TRUE(keys.wait_for("error: the conversation has")) << keys.out();
  ASSERT_TRUE(keys.wait_for("> ")) << keys.out();
  keys.press("Hi\n");
  ASSERT_TRUE(keys.wait_for("(cut off by --max-tokens)")) << keys.out();
  keys.press("\x04");
  EXPECT_EQ(keys.end(), 0) << keys.out();
}

}  // namespace
}  // namespace bw
