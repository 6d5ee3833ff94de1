// What a fuzz target is made of: one file fuzz_NAME.cc with
//
//   BW_FUZZ_TARGET(NAME, input) { parse(input); }
//
// and a folder corpus/NAME of small inputs. The preset `fuzz` makes a libFuzzer program of it; in all other builds the
// test program runs it on its corpus.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bitwright/error.h"

namespace bw::fuzz {

using Function = void (*)(std::string_view input);

// Of this program, by name.
inline std::map<std::string, Function>& targets() {
  static std::map<std::string, Function> all;
  return all;
}

// What must hold for every input. Never an Error, so that no target can take it for a refusal.
inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

// Bad input is refused with an Error(kModel) of one line that no terminal takes for a command; all else is a finding.
inline void run(Function function, std::string_view input) {
  try {
    function(input);
  } catch (const Error& error) {
    const std::string what = error.what();
    require(error.code() == ErrorCode::kModel, "an error of another kind: " + what);
    for (const char c : what) {
      const auto byte = static_cast<unsigned char>(c);
      require(byte >= 0x20 && byte != 0x7f, "an error with control characters: " + what);
    }
  }
}

// Takes numbers off the front of an input; zeros where it has ended.
class Reader {
 public:
  explicit Reader(std::string_view input) : rest_(input) {}

  template <typename T>
  T take() {
    T value = 0;
    for (size_t i = 0; i < sizeof(T) && !rest_.empty(); ++i, rest_.remove_prefix(1)) {
      value = static_cast<T>(value | static_cast<T>(static_cast<unsigned char>(rest_[0])) << (8 * i));
    }
    return value;
  }
  std::string_view take_bytes(size_t n) {
    const std::string_view bytes = rest_.substr(0, n);
    rest_.remove_prefix(bytes.size());
    return bytes;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace bw::fuzz

// Defines the target: a function of the input, a string_view.
#define BW_FUZZ_TARGET(name, input)          \
  static void fuzz_##name(std::string_view); \
  BW_FUZZ_ENTER(name)                        \
  static void fuzz_##name(std::string_view input)

#ifdef BW_FUZZING
#define BW_FUZZ_ENTER(name)                                                  \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {  \
    bw::fuzz::run(fuzz_##name, {reinterpret_cast<const char*>(data), size}); \
    return 0;                                                                \
  }
#else
#define BW_FUZZ_ENTER(name) \
  static const bool registered_##name = bw::fuzz::targets().emplace(#name, fuzz_##name).second;
#endif
