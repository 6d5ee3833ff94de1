// The devices by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace bw::backend {

struct DeviceOptions {
  std::string name = "cpu";
  size_t threads = 0;         // of the host: 0: one per core
  uint64_t memory_limit = 0;  // bytes of device memory; 0: what the device has
};

// Throws Error(kUsage) for a name that is not known here, and what the device throws if it cannot be used.
std::unique_ptr<Backend> make_backend(const DeviceOptions& options);

// "cpu", and the others that this build has.
std::vector<std::string> device_names();

}  // namespace bw::backend
