// Progress, notes and warnings of a run, on their way to the caller; and the caller's wish to end it.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

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
  void warn(std::string_view stage, std::string text) {
    const bool is_new = add(text);
    if (is_new && on_warning_) on_warning_(stage, text);
    if (function_) function_({ProgressEvent::Kind::kWarning, stage, 0, 0, std::move(text), {}});
  }
  // All that has been warned of, each once, and what earlier runs of the job have; in order.
  const std::vector<std::string>& warnings() const { return warnings_; }
  void recall(const std::string& warning) { add(warning); }
  // Called with every warning that is a new one; empty: not any more.
  void on_warning(std::function<void(std::string_view stage, const std::string& text)> function) {
    on_warning_ = std::move(function);
  }

 private:
  bool add(const std::string& warning) {
    if (std::find(warnings_.begin(), warnings_.end(), warning) != warnings_.end()) return false;
    warnings_.push_back(warning);
    return true;
  }

  ProgressFunction function_;
  std::function<bool()> interrupted_;
  std::vector<std::string> warnings_;
  std::function<void(std::string_view, const std::string&)> on_warning_;
  std::function<std::string()> interruption_advice_ = [] {
    return "what was not complete is removed; run the command again for the rest";
  };
};

}  // namespace bw::pipeline
