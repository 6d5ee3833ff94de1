// The program on a terminal of a given size, and what one would see there.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/program.h"
#include "cli/terminal.h"

namespace bw::test {

// Runs it with stdin, stdout and stderr on a terminal. `out` has all that was written to it, as it was.
inline Outcome run_on_terminal(const std::vector<std::string>& arguments, unsigned short columns,
                               const std::vector<std::pair<std::string, std::string>>& environment) {
  winsize size{};
  size.ws_col = columns;
  size.ws_row = 24;
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, &size);
  if (pid == 0) {
    for (const char* name : {"NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG"}) unsetenv(name);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> argv = {const_cast<char*>(BW_PROGRAM)};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execv(BW_PROGRAM, argv.data());
    _exit(127);
  }
  Outcome o;
  std::array<char, 4096> buffer;
  for (ssize_t n = 0; (n = read(terminal, buffer.data(), buffer.size())) > 0;) {
    o.out.append(buffer.data(), static_cast<size_t>(n));
  }
  int status = 0;
  waitpid(pid, &status, 0);
  close(terminal);
  o.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return o;
}

// What a terminal makes of it: lines that stay, and each state of those that were written over. It knows \r, \n,
// "erase to the end of the line" and colours; anything else is a failure.
struct Screen {
  std::vector<std::string> lines, drawn;
  size_t widest = 0, colours = 0;  // widest of `drawn`

  explicit Screen(const std::string& bytes) {
    std::string line;
    const auto note = [&] {
      if (!line.empty() && (drawn.empty() || drawn.back() != line)) drawn.push_back(line);
      widest = std::max(widest, cli::width_of(line));
    };
    bool rewound = false;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == '\n') {
        lines.push_back(line);
        line.clear();
        rewound = false;
      } else if (bytes[i] == '\r') {
        if (i + 1 < bytes.size() && bytes[i + 1] == '\n') continue;
        note();
        rewound = true;
      } else if (bytes[i] == '\x1b') {
        const size_t end = bytes.find_first_of("mK", i);
        if (end == std::string::npos || bytes[i + 1] != '[') {
          ADD_FAILURE() << "an unknown sequence at byte " << i;
          return;
        }
        colours += bytes[end] == 'm';
        if (bytes[end] == 'K' && rewound) line.clear();
        i = end;
      } else {
        if (rewound) line.clear();  // what is drawn anew ends with an erasure
        rewound = false;
        line += bytes[i];
      }
    }
    if (!line.empty()) lines.push_back(line);
  }
};

}  // namespace bw::test
