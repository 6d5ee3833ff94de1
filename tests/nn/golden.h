// Reading golden values.
#pragma once

#include <string>
#include <vector>

#include "io/safetensors.h"

namespace bw::nn {

inline std::vector<float> golden_floats(const io::ShardSet& set, const std::string& name) {
  const io::TensorData t = set.require(name);
  std::vector<float> v(t.entry->elements());
  io::read_floats(t, v);
  return v;
}

inline std::vector<uint32_t> golden_tokens(const io::ShardSet& set, const std::string& name) {
  const io::TensorData t = set.require(name);
  const auto* ids = reinterpret_cast<const int32_t*>(t.bytes.data());
  return {ids, ids + t.entry->elements()};
}

}  // namespace bw::nn
