// Memory that the host and the threads of the test device see at different addresses.
#pragma once

#include <cstddef>

namespace bw::backend::sim {

// Fresh memory holds this in every byte: NaN as float, -1 as index.
inline constexpr int kPoison = 0xff;

// The host's side can be closed: then any access through it faults. What runs over the end by more than the 63 bytes
// of alignment faults on both sides.
class TwoSided {
 public:
  enum class HostSide { kOpen, kClosed };
  TwoSided(size_t bytes, HostSide side);
  ~TwoSided();
  TwoSided(const TwoSided&) = delete;
  TwoSided& operator=(const TwoSided&) = delete;

  size_t bytes() const { return bytes_; }
  std::byte* host_side() const { return base_ + offset_; }
  std::byte* device_side() const { return base_ + size_ + page_ + offset_; }
  void open_host_side();
  void close_host_side();

 private:
  size_t bytes_, page_, size_, offset_;
  std::byte* base_ = nullptr;  // the host's pages, a guard page, the device's view of them, a guard page
};

}  // namespace bw::backend::sim
