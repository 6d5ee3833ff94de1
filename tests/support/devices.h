// The devices that tests of the layers above them run on: results must be the same bytes on all of them.
#pragma once

#include <memory>
#include <string>

#include "backend/devices.h"

namespace bw::test {

inline constexpr const char* kDevices[] = {"cpu", "sim"};

inline std::unique_ptr<backend::Backend> make_device(const std::string& name, size_t threads = 2) {
  return backend::make_backend({.name = name, .threads = threads});
}

}  // namespace bw::test
