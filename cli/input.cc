#include "input.h"

#include <array>
#include <cerrno>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "commands.h"

namespace bw::cli {

size_t read_input(std::span<char> bytes) {
  while (true) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const int ready = poll(&input, 1, 200);
    if (interrupted()) throw Error(ErrorCode::kInterrupted, "interrupted");
    if (ready == 0) continue;
    const ssize_t n = read(STDIN_FILENO, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(ErrorCode::kIo, "standard input cannot be read");
    return static_cast<size_t>(n);
  }
}

std::optional<std::string> InputLines::next() {
  constexpr size_t kLongest = size_t{16} << 20;
  std::array<char, 4096> buffer;
  size_t end = 0;
  while ((end = read_.find('\n')) == std::string::npos && !end_) {
    if (read_.size() > kLongest) {
      throw Error(ErrorCode::kUsage, fmt::format("standard input: a line has more than {} bytes", kLongest));
    }
    const size_t n = read_input(buffer);
    read_.append(buffer.data(), n);
    end_ = n == 0;
  }
  if (end == std::string::npos && read_.empty()) return std::nullopt;
  std::string line = read_.substr(0, end);
  read_.erase(0, end == std::string::npos ? end : end + 1);
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace bw::cli
