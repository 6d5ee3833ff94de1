// What the tests of the devices share: the devices themselves, and the Highway targets of this processor.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/devices.h"
#include "backend/fake_cuda/machine.h"
#include "bitwright/error.h"
#include "hwy/highway.h"

namespace bw::backend {

// A device under test.
struct TestDevice {
  std::string name;                                // letters, digits and _
  std::function<std::unique_ptr<Backend>()> make;  // null if this build does not have it
  bool may_fail = false;                           // the machine may lack it
  bool checks_indices = true;                      // refuses positions and tokens outside their tables
  bool played = false;                             // by this processor, and far slower than it
};

inline void PrintTo(const TestDevice& device, std::ostream* out) { *out << device.name; }

inline TestDevice cuda_test_device() {
#ifdef BW_CUDA
  return {"cuda", [] { return make_backend({.name = "cuda"}); }, true, false};
#else
  return {"cuda", nullptr, true, false};
#endif
}

inline const std::vector<TestDevice>& test_devices() {
  static const std::vector<TestDevice> devices = [] {
    std::vector<TestDevice> all;
    all.push_back({"cpu", [] { return make_cpu_backend(2); }});
    all.push_back({"cpu_without_bf16", [] { return std::make_unique<cpu::CpuBackend>(2, false); }});
    all.push_back({"sim", [] { return make_backend({.name = "sim", .threads = 2}); }});
    all.push_back({"fake_cuda", [] { return fake_cuda::make_backend(); }, false, false, true});
    all.push_back(cuda_test_device());
    return all;
  }();
  return devices;
}

// Why a device cannot be tested here; empty if it can.
inline std::string why_skipped(const TestDevice& device) {
  if (!device.make) return "this build has no " + device.name;
  if (!device.may_fail) return {};
  static std::map<std::string, std::string> reasons;
  const auto [at, fresh] = reasons.try_emplace(device.name);
  if (!fresh) return at->second;
  try {
    device.make();
  } catch (const Error& e) {
    at->second = e.what();
  }
  return at->second;
}

// Those that can.
inline std::vector<TestDevice> usable_devices() {
  std::vector<TestDevice> usable;
  for (const TestDevice& device : test_devices()) {
    if (why_skipped(device).empty()) usable.push_back(device);
  }
  return usable;
}

// Runs the body under every instruction set that this processor and this build have.
inline void for_each_simd_target(const std::function<void()>& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

// Whether enqueueing or what comes after throws.
template <typename O>
bool refuses(Backend& device, O op) {
  try {
    device.enqueue(std::move(op));
    device.wait_all("test");
  } catch (const Error&) {
    return true;
  }
  return false;
}

}  // namespace bw::backend
