// Progress, notes and warnings of a run, on their way to the caller.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bitwright/options.h"

namespace bw::pipeline {

class Reporter {
 public:
  explicit Reporter(ProgressFunction function) : function_(std::move(function)) {}

  void progress(std::string_view stage, double done, double total, std::string text = {}) const {
    if (function_) function_({ProgressEvent::Kind::kProgress, stage, done, total, std::move(text)});
  }
  void note(std::string_view stage, std::string text) const {
    if (function_) function_({ProgressEvent::Kind::kNote, stage, 0, 0, std::move(text)});
  }
  // Also kept, for the report.
  void warn(std::string_view stage, std::string text) {
    warnings_.push_back(text);
    if (function_) function_({ProgressEvent::Kind::kWarning, stage, 0, 0, std::move(text)});
  }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  ProgressFunction function_;
  std::vector<std::string> warnings_;
};

}  // namespace bw::pipeline
