// Memory of the test device, and of the host for copies to and from it.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/sim/hazard_checker.h"
#include "backend/sim/two_sided.h"

namespace bw::backend::sim {

// Counts device memory. Limit 0: none. Not thread-safe: handles go on the thread that enqueues.
class Account {
 public:
  explicit Account(uint64_t limit) : limit_(limit) {}
  // Throws OutOfDeviceMemory.
  void take(size_t bytes);
  void leave(size_t bytes) { used_ -= bytes; }

  uint64_t limit() const { return limit_; }
  uint64_t used() const { return used_; }
  uint64_t most_used() const { return most_used_; }

 private:
  uint64_t limit_, used_ = 0, most_used_ = 0;
};

// What queued work holds: the side of the memory that the threads of the device may touch.
class DeviceSide final : public Memory {
 public:
  DeviceSide(size_t bytes, TwoSided::HostSide side) : pages_(bytes, side) {}
  void* pointer() override { return pages_.device_side(); }
  size_t bytes() const override { return pages_.bytes(); }
  TwoSided& pages() { return pages_; }

 private:
  TwoSided pages_;
};

// What the host holds of device memory. Its address faults.
class DeviceMemory final : public Memory {
 public:
  // Takes the bytes from the account.
  DeviceMemory(size_t bytes, std::shared_ptr<Account> account);
  ~DeviceMemory() override;
  void* pointer() override { return device_side_->pages().host_side(); }
  size_t bytes() const override { return bytes_; }

  const std::shared_ptr<DeviceSide>& device_side() const { return device_side_; }
  const Account* account() const { return account_.get(); }
  History& history() { return history_; }

 private:
  size_t bytes_;
  std::shared_ptr<Account> account_;
  std::shared_ptr<DeviceSide> device_side_;
  History history_;
};

// Host memory whose address faults while it belongs to a copy.
class HostMemory final : public Memory {
 public:
  // `staged`: to be filled by the host; else to be written by a download, and closed until the host has waited for it.
  HostMemory(size_t bytes, bool staged);
  void* pointer() override { return device_side_->pages().host_side(); }
  size_t bytes() const override { return device_side_->bytes(); }

  bool staged() const { return staged_; }
  // True if the download has run once `known` has of each queue.
  bool written_by(const Clock& known) const;
  // The download has been waited for.
  void open();
  // The host gives it up for good. Throws Error(kInternal) if it has done so before.
  void give_up();

  const std::shared_ptr<DeviceSide>& device_side() const { return device_side_; }
  History& history() { return history_; }

 private:
  bool staged_, given_up_ = false;
  std::shared_ptr<DeviceSide> device_side_;
  History history_;
};

// A weight as the host holds it. `packed` is the runner's; `place` takes the room that it would have on a device.
class SimWeight final : public Weight {
 public:
  SimWeight(std::shared_ptr<Weight> packed, std::shared_ptr<DeviceMemory> place)
      : Weight(packed->out(), packed->in()), packed_(std::move(packed)), place_(std::move(place)) {}
  const std::shared_ptr<Weight>& packed() const { return packed_; }
  DeviceMemory& place() const { return *place_; }

 private:
  std::shared_ptr<Weight> packed_;
  std::shared_ptr<DeviceMemory> place_;
};

}  // namespace bw::backend::sim
