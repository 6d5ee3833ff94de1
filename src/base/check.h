// Checks for our own bugs. They throw, so that a server that embeds the library survives them.
#pragma once

#include <string>

#include "bitwright/error.h"

namespace bw {

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  throw Error(ErrorCode::kInternal,
              std::string("internal error: ") + condition + " does not hold at " + file + ":" + std::to_string(line));
}

}  // namespace bw

// Holds in every build; for conditions that only a bug of ours can break.
#define BW_CHECK(condition)                                               \
  do {                                                                    \
    if (!(condition)) ::bw::check_failed(#condition, __FILE__, __LINE__); \
  } while (0)

// The same in debug builds only; for hot loops.
#ifdef NDEBUG
#define BW_DCHECK(condition) ((void)0)
#else
#define BW_DCHECK(condition) BW_CHECK(condition)
#endif
