// Codes as weights and as packed words.
#include "backend/cuda/kernels.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

// w[c][order[r]] of the element (r, c) of the codes. See scale_grid.h.
struct DequantizeBody {
  ConstBytes codes, scale_codes;
  View<const Half> scale_max;
  ConstInts order;
  float zero;
  uint32_t group_size;
  Floats w;
  __device__ void operator()(size_t r, size_t c) const {
    const size_t group = r / group_size;
    const float step = static_cast<float>(scale_codes(group, c)) + 1;
    const float scale = round_to_half(step * step * round_to_half(to_float(scale_max(group, 0)) / 256.0f));
    w(c, static_cast<size_t>(order(r, 0))) = round_to_half((static_cast<float>(codes(r, c)) - zero) * scale);
  }
};

// The 32 codes of a column that make `bits` words: block of rows r, column c.
struct PackBody {
  ConstBytes codes;
  int bits;
  View<uint32_t> words;
  __device__ void operator()(size_t r, size_t c) const {
    uint64_t pending = 0;
    int filled = 0;
    size_t word = r * static_cast<size_t>(bits);
    for (size_t i = r * 32; i < (r + 1) * 32; ++i) {
      pending |= uint64_t{codes(i, c)} << filled;
      filled += bits;
      if (filled < 32) continue;
      words(word++, c) = static_cast<uint32_t>(pending);
      pending >>= 32;
      filled -= 32;
    }
  }
};

struct UnpackBody {
  View<const uint32_t> words;
  int bits;
  Bytes codes;
  __device__ void operator()(size_t r, size_t c) const {
    const uint64_t mask = (uint64_t{1} << bits) - 1;
    uint64_t pending = 0;
    int left = 0;
    size_t word = r * static_cast<size_t>(bits);
    for (size_t i = r * 32; i < (r + 1) * 32; ++i) {
      if (left < bits) {
        pending |= uint64_t{words(word++, c)} << left;
        left += 32;
      }
      codes(i, c) = static_cast<uint8_t>(pending & mask);
      pending >>= bits;
      left -= bits;
    }
  }
};

struct PackNibblesBody {
  ConstBytes codes;
  View<uint32_t> words;
  __device__ void operator()(size_t r, size_t c) const {
    uint32_t word = 0;
    for (unsigned i = 0; i < 8; ++i) word |= uint32_t{codes(r, 8 * c + i)} << (4 * i);
    words(r, c) = word;
  }
};

struct UnpackNibblesBody {
  View<const uint32_t> words;
  Bytes codes;
  __device__ void operator()(size_t r, size_t c) const {
    codes(r, c) = static_cast<uint8_t>(words(r, c / 8) >> (4 * (c % 8)) & 15u);
  }
};

}  // namespace

void dequantize(cudaStream_t stream, const op::Dequantize& op) {
  const Floats w = floats(op.w);
  for_each(stream, op.codes.rows, w.rows,
           DequantizeBody{view_of<const uint8_t>(op.codes), view_of<const uint8_t>(op.scale_codes),
                          view_of<const Half>(op.scale_max), view_of<const int32_t>(op.order),
                          static_cast<float>(1 << (op.bits - 1)), op.group_size, w});
}

void pack_bits(cudaStream_t stream, ConstBytes codes, int bits, View<uint32_t> words) {
  for_each(stream, codes.rows / 32, codes.cols, PackBody{codes, bits, words});
}

void unpack_bits(cudaStream_t stream, View<const uint32_t> words, int bits, Bytes codes) {
  for_each(stream, codes.rows / 32, codes.cols, UnpackBody{words, bits, codes});
}

void pack_nibbles(cudaStream_t stream, ConstBytes codes, View<uint32_t> words) {
  for_each(stream, words.rows, words.cols, PackNibblesBody{codes, words});
}

void unpack_nibbles(cudaStream_t stream, View<const uint32_t> words, Bytes codes) {
  for_each(stream, codes.rows, codes.cols, UnpackNibblesBody{words, codes});
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
