// What a failing call says.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "bitwright/error.h"

namespace bw::test {

// Runs `f`, which must throw bw::Error with `code` and one line that contains all of `words`.
template <typename F>
void expect_error(F&& f, ErrorCode code, std::initializer_list<std::string_view> words) {
  try {
    f();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), code) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    for (const std::string_view word : words)
      EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
    return;
  }
  ADD_FAILURE() << "no error, expected one with: " << (words.size() != 0 ? *words.begin() : std::string_view());
}

}  // namespace bw::test
