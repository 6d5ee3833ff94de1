// Manual pages and completion, made from the options that there are.
#include <sstream>

#include <gtest/gtest.h>

#include "cli/commands.h"
#include "cli/option_list.h"
#include "cli/program.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::quoted;
using test::shell;

class Pages : public test::Program {
 protected:
  // The completions of a command line, its last word being written; sorted.
  std::vector<std::string> complete(const std::vector<std::string>& words) {
    std::string line =
        "cd " + quoted(dir_.path()) + "; source <(" + quoted(BW_PROGRAM) + " completion bash); COMP_WORDS=(";
    for (const std::string& word : words) line += " " + test::quoted(word);
    line +=
        "); COMP_CWORD=" + std::to_string(words.size() - 1) + "; _bitwright; printf '%s\\n' \"${COMPREPLY[@]}\" | sort";
    std::istringstream out(shell("bash --norc -c " + test::quoted(line)).out);
    std::vector<std::string> found;
    for (std::string word; std::getline(out, word);) {
      if (!word.empty()) found.push_back(word);
    }
    return found;
  }
  static bool is_there(const char* tool) { return shell(std::string("command -v ") + tool).status == 0; }
  // The options that `--help` of a command shows.
  std::vector<std::string> options_in_help(const std::string& command) {
    std::istringstream help(run(command + " --help").out);
    std::vector<std::string> options;
    for (std::string line; std::getline(help, line);) {
      if (!line.starts_with("  -")) continue;
      std::istringstream names(line.substr(0, line.find(' ', 2)));
      for (std::string name; std::getline(names, name, ',');) options.push_back(name.substr(name.find('-')));
    }
    return options;
  }
};

const std::vector<std::string> kCommands = {"plan",   "quantize", "measure",  "eval", "inspect",
                                            "report", "calib",    "generate", "chat", "convert"};

TEST_F(Pages, EveryOptionOfEveryCommandIsInAllOfThem) {
  const std::string bash = run("completion bash").out, zsh = run("completion zsh").out,
                    fish = run("completion fish").out;
  for (const std::string& command : kCommands) {
    const std::string page = run("man " + command).out;
    const std::vector<std::string> options = options_in_help(command);
    EXPECT_GE(options.size(), 3u) << command;
    const std::vector<std::string> offered = complete({"bitwright", command, "-"});
    for (const std::string& option : options) {
      std::string roff;
      for (const char c : option) roff += c == '-' ? "\\-" : std::string(1, c);
      EXPECT_NE(page.find("\\fB" + roff + "\\fR"), std::string::npos) << command << " " << option;
      EXPECT_TRUE(std::find(offered.begin(), offered.end(), option) != offered.end()) << command << " " << option;
      EXPECT_NE(zsh.find(option + "["), std::string::npos) << command << " " << option;
      const std::string name = option.starts_with("--") ? " -l " + option.substr(2) : " -s " + option.substr(1);
      bool found = false;
      std::istringstream lines(fish);
      for (std::string line; std::getline(lines, line);) {
        found |= line.find("'__fish_seen_subcommand_from " + command + "'") != std::string::npos &&
                 line.find(name + " ") != std::string::npos;
      }
      EXPECT_TRUE(found) << command << " " << option;
    }
    EXPECT_EQ(offered.size(), options.size()) << command;
  }
}

TEST_F(Pages, BashCompletesCommandsOptionsAndValues) {
  std::vector<std::string> first = {"--help", "--version", "-h"};
  first.insert(first.end(), kCommands.begin(), kCommands.end());
  std::sort(first.begin(), first.end());
  auto offered = complete({"bitwright", ""});
  std::sort(offered.begin(), offered.end());
  EXPECT_EQ(offered, first);
  using Words = std::vector<std::string>;
  EXPECT_EQ(complete({"bitwright", "qu"}), Words{"quantize"});
  EXPECT_EQ(complete({"bitwright", "quantize", "--eff"}), Words{"--effort"});
  EXPECT_EQ(complete({"bitwright", "quantize", "MODEL", "--effort", ""}), (Words{"best", "fast", "normal"}));
  EXPECT_EQ(complete({"bitwright", "quantize", "--effort", "=", "n"}), Words{"normal"});
  EXPECT_EQ(complete({"bitwright", "quantize", "--effort", "="}), (Words{"best", "fast", "normal"}));
  EXPECT_EQ(complete({"bitwright", "quantize", "--bpw", ""}), Words{});  // a number
  EXPECT_EQ(complete({"bitwright", "frobnicate", ""}), Words{});
}

TEST_F(Pages, BashCompletesFilesAndDirectoriesWithSpaces) {
  fs::create_directory(dir_ / "my models");
  using Words = std::vector<std::string>;
  EXPECT_EQ(complete({"bitwright", "plan", ""}), Words{"my models"});
  EXPECT_EQ(complete({"bitwright", "eval", "--text", "cal"}), Words{"calibration text.txt"});
  EXPECT_EQ(complete({"bitwright", "quantize", "--calib", "cal"}), Words{"calibration text.txt"});
  EXPECT_EQ(complete({"bitwright", "eval", "--ref", ""}), Words{"my models"});
}

TEST_F(Pages, ShellsReadTheirScripts) {
  for (const char* name : {"bash", "zsh", "fish"}) {
    if (!is_there(name)) continue;
    const fs::path file = dir_ / "script";
    ASSERT_EQ(run(std::string("completion ") + name + " >" + quoted(file)).status, 0);
    const Outcome o = shell(std::string(name) + " -n " + quoted(file));
    EXPECT_EQ(o.status, 0) << name << ": " << o.out;
  }
}

TEST_F(Pages, FishCompletes) {
  if (!is_there("fish")) GTEST_SKIP() << "no fish";
  const auto ask = [&](const std::string& line) {
    return shell("HOME=" + quoted(dir_.path()) + " fish --no-config -c " +
                 test::quoted(quoted(BW_PROGRAM) + " completion fish | source; complete -C " + test::quoted(line)))
        .out;
  };
  EXPECT_TRUE(ask("bitwright qu").starts_with("quantize\t")) << ask("bitwright qu");
  EXPECT_EQ(ask("bitwright quantize --effort ").substr(0, 4), "best");
  EXPECT_TRUE(ask("bitwright eval --tex").starts_with("--text\t"));
}

TEST_F(Pages, ManFormatsEveryPageWithoutAWarning) {
  const fs::path pages = dir_ / "pages";
  fs::create_directory(pages);
  ASSERT_EQ(run("man -o " + quoted(pages)).status, 0);
  size_t n = 0;
  for (const auto& entry : fs::directory_iterator(pages)) {
    ++n;
    if (is_there("groff")) {
      const Outcome o = shell("groff -man -Tutf8 -ww -z " + quoted(entry.path()));
      EXPECT_EQ(o.out, "") << entry.path();
    }
    if (is_there("mandoc")) {
      // There is no date: the same sources make the same bytes.
      const Outcome o = shell("mandoc -T lint -W warning " + quoted(entry.path()) + " | grep -v 'missing date'");
      EXPECT_EQ(o.out, "");
    }
  }
  EXPECT_EQ(n, kCommands.size() + 1);
  if (!is_there("man") || !is_there("groff")) return;
  const Outcome page = shell("MANWIDTH=80 man -l " + quoted(pages / "bitwright-quantize.1") + " | col -b");
  for (const char* words : {"--effort fast|normal|best", "bitwright quantize MODEL -o OUT --bpw 4.0", "NO_COLOR"}) {
    EXPECT_NE(page.out.find(words), std::string::npos) << words << " is not in: " << page.out;
  }
}

TEST_F(Pages, ScriptsGoToStdoutAloneAndAreTheSameEachTime) {
  EXPECT_EQ(run("completion bash 2>&1 >/dev/null").out, "");
  EXPECT_EQ(run("man 2>&1 >/dev/null").out, "");
  EXPECT_EQ(run("man").out, run("man").out);
  EXPECT_EQ(run("completion").status, 2);
}

TEST(ManualPage, EscapesWhatRoffWouldTakeForItsOwn) {
  const cli::CommandInfo program,
      command{
          "x", ".\\a -'`^~", {".dot"}, {}, {{{"-y"}, cli::ValueKind::kAnything, "'Z", {}, ".\\e", "", false, false}}};
  const std::string page = cli::manual_page({program, command}, command);
  EXPECT_NE(page.find("bitwright\\-x \\- \\&.\\ea \\-\\(aq\\(ga\\(ha\\(ti"), std::string::npos) << page;
  EXPECT_NE(page.find("\n\\&.dot\n"), std::string::npos) << page;
  EXPECT_NE(page.find("\n\\&.\\ee.\n"), std::string::npos) << page;
}

TEST(Completion, QuotesWhatShellsWouldTakeForTheirOwn) {
  const cli::CommandInfo program,
      command{"x",
              "it's [a]: \\b",
              {},
              {},
              {{{"-y", "--yy"}, cli::ValueKind::kChoice, "a|b", {"a", "b"}, "it's [c]: \\d", "", false, true}}};
  const std::string zsh = cli::zsh_completion({program, command}), fish = cli::fish_completion({program, command});
  EXPECT_NE(zsh.find("'x:it'\\''s \\[a\\]\\: \\\\b'"), std::string::npos) << zsh;
  EXPECT_NE(zsh.find("'*--yy[it'\\''s \\[c\\]\\: \\\\d]:a|b:(a b)'"), std::string::npos) << zsh;
  EXPECT_NE(fish.find("-s y -l yy -x -a 'a b' -d 'it\\'s [c]: \\\\d'"), std::string::npos) << fish;
}

}  // namespace
}  // namespace bw
