// The loader of linears for tests and benchmarks of models that are not quantized.
#pragma once

#include "nn/decoder.h"

namespace bw::test {

// Both must outlive it.
inline nn::Decoder::LinearLoader plain_linears(const model::ModelDir& dir, backend::Backend& device) {
  return [&](const model::LinearInfo& info) {
    backend::HostTensor w = device.stage(info.out, info.in);
    dir.load_linear(info, w.as<float>());
    return device.upload(std::move(w));
  };
}

}  // namespace bw::test
