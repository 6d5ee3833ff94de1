// Variables and recursion of a running template.
#pragma once

#include <map>
#include <memory>
#include <string_view>

#include "tokenizer/jinja/value.h"

namespace bw::tokenizer::jinja {

// Variables of a block. The names are those of the template or of the caller's variables, which outlive it.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::map<std::string_view, Value> variables;
};

// Counts how deep statements, expressions and macros recurse; a thousand levels fit a stack of 8 MB, also
// with AddressSanitizer.
class DepthGuard {
 public:
  explicit DepthGuard(int& depth) : depth_(depth) {
    if (depth_ >= kMaxDepth) throw Fault("maximum recursion depth exceeded");
    ++depth_;
  }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  static constexpr int kMaxDepth = 1000;
  int& depth_;
};

}  // namespace bw::tokenizer::jinja
