// A record of what ran when: stages, operations, copies and waits as spans of time, each on a track.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace bw::backend {

struct Span {
  std::string_view track;  // "stages", "layers", "waits", or a queue of the device; lives as long as the program
  std::string name;
  int64_t begin_ns = 0, end_ns = 0;  // by Trace::now
  uint64_t bytes = 0;                // of a copy
  double flops = 0;                  // of a product
};

// Thread-safe.
class Trace {
 public:
  // Nanoseconds since this trace was made.
  int64_t now() const;
  void add(Span span);
  std::vector<Span> spans() const;

  // All spans in the Trace Event Format's JSON ("X" events, one thread for each track), as Chrome and Perfetto open it.
  std::string chrome_json() const;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  std::vector<Span> spans_;
};

}  // namespace bw::backend
