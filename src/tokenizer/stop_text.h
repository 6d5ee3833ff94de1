// Ends a text that grows before any of some given texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bw::tokenizer {

class StopText {
 public:
  // Empty texts stop nothing.
  explicit StopText(std::vector<std::string> texts);

  // The part of all that was given so far which can be handed out now: what may be the beginning of a stop text waits.
  // Of whole UTF-8 characters where the pieces and the stop texts are. Empty once the text has stopped.
  std::string push(std::string_view piece);
  // What still waits.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> texts_;
  std::string waiting_;
  bool stopped_ = false;
};

}  // namespace bw::tokenizer
