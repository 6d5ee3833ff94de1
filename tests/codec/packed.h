// Stored linears on the host's side, for tests that make them up or spoil them.
#pragma once

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "codec/exl2.h"
#include "quant/host_side.h"

namespace bw::codec {

inline Exl2Linear pack_on(backend::Backend& device, const quant::HostLinear& q, const std::string& name = "test") {
  return finish(device, pack(device, quant::upload(device, q)), name);
}

inline quant::HostLinear unpack_on(backend::Backend& device, Exl2Linear p, const std::string& name = "test") {
  return quant::read_linear(device, unpack(device, std::move(p), name));
}

// `rows` rows like those of t: its own as far as they go, then zeros.
inline backend::HostTensor resized(backend::Backend& device, const backend::HostTensor& t, size_t rows, size_t cols) {
  backend::HostTensor copy = device.stage(rows, cols, t.dtype);
  const std::span<std::byte> to = copy.raw(), from = t.raw();
  const size_t kept = std::min(to.size(), from.size());
  std::copy_n(from.begin(), kept, to.begin());
  std::fill(to.begin() + static_cast<ptrdiff_t>(kept), to.end(), std::byte{0});
  return copy;
}

// Unpacking gives the host's memory of a linear up: what is to be unpacked twice must be copied.
inline Exl2Linear copy_of(backend::Backend& device, const Exl2Linear& p) {
  const auto copy = [&](const backend::HostTensor& t) { return resized(device, t, t.rows, t.cols); };
  return {p.in, p.out, copy(p.q_weight), copy(p.q_scale), copy(p.q_scale_max), p.q_groups, p.q_invperm};
}

inline void expect_same_bytes(const Exl2Linear& a, const Exl2Linear& b) {
  EXPECT_EQ(a.in, b.in);
  EXPECT_EQ(a.out, b.out);
  for (size_t i = 0; i < 5; ++i) {
    const std::span<const std::byte> x = tensor_bytes(a, i), y = tensor_bytes(b, i);
    EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << "tensor " << i;
  }
}

}  // namespace bw::codec
