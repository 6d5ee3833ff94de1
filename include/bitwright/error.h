// Errors of the public API. Everything under src/ reports failure by throwing bw::Error; nothing prints or exits.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace bw {

// What kind of failure it is; the command line maps it to its exit status.
enum class ErrorCode {
  kUsage = 2,         // an option or argument makes no sense (also: text too short, bpw out of reach)
  kModel = 3,         // the model directory, its data or a text file is bad
  kNumeric = 4,       // NaN, Inf, a matrix that cannot be factored
  kIo = 5,            // the file system or the disk
  kInternal = 6,      // our own bug
  kInterrupted = 130  // the user stopped the run
};

// One line that says what failed, on what, what was expected, what was found, and (hint) what to do about it.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& what, std::string hint = {})
      : std::runtime_error(hint.empty() ? what : what + "; " + hint), code_(code), hint_(std::move(hint)) {}

  ErrorCode code() const noexcept { return code_; }
  // The part of what() that says what to do; empty if nothing is known to help.
  const std::string& hint() const noexcept { return hint_; }

 private:
  ErrorCode code_;
  std::string hint_;
};

}  // namespace bw
