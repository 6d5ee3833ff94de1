#include "backend/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/sim/sim_backend.h"
#include "bitwright/error.h"
#ifdef BW_CUDA
#include "backend/cuda/cuda_backend.h"
#endif

namespace bw::backend {
namespace {

struct Device {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(const DeviceOptions&);
};

constexpr Device kDevices[] = {
    {"cpu",
     [](const DeviceOptions& o) {
       if (o.memory_limit != 0) {
         throw Error(ErrorCode::kUsage, "--device-memory: the device cpu has no memory of its own",
                     "leave it out, or choose another --device");
       }
       return make_cpu_backend(o.threads);
     }},
    {"sim",
     [](const DeviceOptions& o) {
       sim::SimOptions options;
       options.threads = o.threads;
       options.memory_limit = o.memory_limit;
       return sim::make_sim_backend(options);
     }},
#ifdef BW_CUDA
    {"cuda", [](const DeviceOptions& o) { return make_cuda_backend({.memory_limit = o.memory_limit}); }},
#endif
};

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Device& d : kDevices) names.emplace_back(d.name);
  return names;
}

std::unique_ptr<Backend> make_backend(const DeviceOptions& options) {
  for (const Device& d : kDevices) {
    if (d.name == options.name) return d.make(options);
  }
  throw Error(ErrorCode::kUsage,
              fmt::format("--device '{}': this build has {}", options.name, fmt::join(device_names(), ", ")),
              options.name == "cuda" ? "build the preset cuda" : "choose one of these");
}

}  // namespace bw::backend
