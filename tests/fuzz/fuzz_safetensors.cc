// A whole file of safetensors: header and data.
#include <span>

#include "fuzz/target.h"
#include "io/safetensors.h"

using namespace bw;

BW_FUZZ_TARGET(safetensors, input) {
  const io::SafetensorsHeader header =
      io::parse_safetensors(std::as_bytes(std::span(input.data(), input.size())), input.size(), "input");
  fuzz::require(header.data_begin <= input.size(), "the data begin beyond the end");
  for (const io::TensorEntry& t : header.tensors) {
    fuzz::require(t.offset >= header.data_begin && t.offset <= input.size() && t.bytes <= input.size() - t.offset,
                  "a tensor lies outside the file");
    fuzz::require(t.elements() * io::element_size(t.type) == t.bytes, "a tensor's size is not that of its shape");
  }
}
