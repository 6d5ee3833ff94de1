#include "backend/sim/memory.h"

#include <algorithm>

#include <fmt/format.h>

#include "bitwright/error.h"
#include "bitwright/units.h"

namespace bw::backend::sim {

void Account::take(size_t bytes) {
  if (limit_ != 0 && bytes > limit_ - used_) {
    throw OutOfDeviceMemory{fmt::format("{} of {} are in use", format_bytes(used_), format_bytes(limit_))};
  }
  used_ += bytes;
  most_used_ = std::max(most_used_, used_);
}

DeviceMemory::DeviceMemory(size_t bytes, std::shared_ptr<Account> account)
    : bytes_(bytes), account_(std::move(account)) {
  account_->take(bytes);
  try {
    device_side_ = std::make_shared<DeviceSide>(bytes, TwoSided::HostSide::kClosed);
  } catch (...) {
    account_->leave(bytes);
    throw;
  }
}

DeviceMemory::~DeviceMemory() { account_->leave(bytes_); }

HostMemory::HostMemory(size_t bytes, bool staged)
    : staged_(staged),
      device_side_(
          std::make_shared<DeviceSide>(bytes, staged ? TwoSided::HostSide::kOpen : TwoSided::HostSide::kClosed)) {}

bool HostMemory::written_by(const Clock& known) const {
  constexpr auto kDownload = static_cast<size_t>(Queue::kDownload);
  return history_.writes[kDownload].sequence <= known[kDownload];
}

void HostMemory::open() {
  if (!given_up_) device_side_->pages().open_host_side();
}

void HostMemory::give_up() {
  if (given_up_) {
    throw Error(ErrorCode::kInternal, "host memory is uploaded that an earlier upload was given for good");
  }
  given_up_ = true;
  device_side_->pages().close_host_side();
}

}  // namespace bw::backend::sim
