// Progress, notes and warnings of a run, on their way to the caller; and the caller's wish to end it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "bitwright/error.h"
#include "bitwright/options.h"

namespace bw::pipeline {

class Reporter {
 public:
  explicit Reporter(const EngineOptions& options) : function_(options.progress), interrupted_(options.interrupted) {}

  bool wants_end() const { return interrupted_ && interrupted_(); }
  // Throws Error(kInterrupted) if the caller wants the run to end. All that is half-written removes itself then.
  void check_interrupted() const {
    if (wants_end()) throw Error(ErrorCode::kInterrupted, "interrupted", interruption_advice_());
  }
  // What an interruption is told with, asked when it happens.
  void advise_interrupted(std::function<std::string()> advice) { interruption_advice_ = std::move(advice); }
  // Also checks for an interruption, but not at the end of a stage (done = total): what is finished stays so.
  void progress(std::string_view stage, double done, double total, std::string text = {},
                std::string_view unit = {}) const {
    if (done < total) check_interrupted();
    if (function_) function_({ProgressEvent::Kind::kProgress, stage, done, total, std::move(text), unit});
  }
  void note(std::string_view stage, std::string text) const {
    if (function_) function_({ProgressEvent::Kind::kNote, stage, 0, 0, std::move(text), {}});
  }
  void warn(std::string_view stage, std::string text) const {
    if (function_) function_({ProgressEvent::Kind::kWarning, stage, 0, 0, std::move(text), {}});
  }

 private:
  ProgressFunction function_;
  std::function<bool()> interrupted_;
  std::function<std::string()> interruption_advice_ = [] {
    return "what was not complete is removed; run the command again for the rest";
  };
};

}  // namespace bw::pipeline
