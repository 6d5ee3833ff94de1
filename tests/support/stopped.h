// Runs that are ended from outside, to be gone on with.
#pragma once

#include <optional>

#include <gtest/gtest.h>

#include "bitwright/bitwright.h"

namespace bw::test {

// Quantizes until the caller is asked for the n-th time whether to go on, and says no: the error of that. None: the run
// was over before.
inline std::optional<Error> stopped_at(QuantizeOptions options, int n) {
  int asked = 0;
  options.engine.interrupted = [&] { return ++asked >= n; };
  try {
    quantize(options);
    return std::nullopt;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInterrupted) << e.what();
    return e;
  }
}

}  // namespace bw::test
