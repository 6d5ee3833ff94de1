// Standard input, read so that an interruption is noticed.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace bw::cli {

// What standard input has, at most bytes.size(); 0 at its end. Waits for it; Error(kInterrupted) if the user wants to
// end meanwhile, Error(kIo) if it cannot be read.
size_t read_input(std::span<char> bytes);

// Its lines.
class InputLines {
 public:
  // Without its end; nullopt after the last. Error(kUsage) for a line that is too long for any text.
  std::optional<std::string> next();

 private:
  std::string read_;  // and not handed out
  bool end_ = false;
};

}  // namespace bw::cli
