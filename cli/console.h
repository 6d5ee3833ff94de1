// All that the program says on stderr: progress, notes, warnings, and the last line.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "bitwright/options.h"
#include "meter.h"
#include "terminal.h"

namespace bw::cli {

struct ConsoleOptions {
  bool json = false;     // one object a line
  bool quiet = false;    // warnings and the last line only
  bool verbose = false;  // also how long each step took
};

// On a terminal the line of the stage at work is written over, at most ten times a second, and also while the stage is
// silent: time goes on, and memory changes. Elsewhere a stage says a plain line for each tenth of it, or a minute
// later. As JSON, at most ten objects a second, and always the first and the last of a stage.
//
// A reader that has gone, or a closed stderr, is no reason to fail. To be used by one thread.
class Console {
 public:
  // The console of the program.
  static Console& get();
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void configure(const ConsoleOptions& options) { options_ = options; }
  void show(const ProgressEvent& event);
  // Text for a person at the terminal, as it is: a prompt, a hint.
  void ask(std::string_view text);
  // "done: ..." (status 0) or what went wrong; nothing is shown after it.
  void last_line(std::string_view text, int status);

 private:
  Console() = default;
  double now() const;
  void show_progress(const ProgressEvent& event);
  void begin_stage(const ProgressEvent& event);
  void end_stage();
  void show_json(bool first);
  void say_step();
  Progress progress() const;
  // The line that is written over: drawn anew, taken away.
  void draw();
  void clear();
  void tick(const std::stop_token& stop);

  ConsoleOptions options_;
  const Look look_ = look_of(2);
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();

  std::mutex mutex_;  // for all below
  std::condition_variable_any wake_;
  Meter meter_;
  std::string stage_, text_, unit_;  // at work; stage empty: none
  double step_began_ = 0;            // when text_ was first told
  bool line_open_ = false;           // there is a line to be written over
  double said_at_ = -1;              // when progress was last drawn or told
  int next_percent_ = 0;             // when to tell the next plain line
  std::optional<std::jthread> ticker_;
};

// Memory of this process that is in use now, 0 if that cannot be told.
uint64_t resident_bytes();

}  // namespace bw::cli
