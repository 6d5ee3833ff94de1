#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "bitwright/error.h"
#include "io/file_write.h"
#include "io/json.h"
#include "io/printable.h"
#include "io/safetensors.h"

namespace bw::io {
namespace {

// Readers view the data in place, so each tensor must begin at a multiple of its element size, and gaps are not
// allowed: the larger elements come first.
std::vector<size_t> file_order(std::span<const TensorPlan> tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return element_size(tensors[a].type) > element_size(tensors[b].type); });
  return order;
}

// Length and JSON, padded so that the data begin at a multiple of 8.
std::string make_header(std::span<const TensorPlan> tensors, std::span<const size_t> order) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  uint64_t offset = 0;
  for (const size_t i : order) {
    const TensorPlan& t = tensors[i];
    const uint64_t bytes = t.bytes();
    const OrderedJson entry = {
        {"dtype", type_name(t.type)}, {"shape", t.shape}, {"data_offsets", {offset, offset + bytes}}};
    text += ',';
    text += Json(t.name).dump();
    text += ':';
    text += entry.dump();
    offset += bytes;
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

}  // namespace

uint64_t TensorPlan::bytes() const {
  uint64_t n = element_size(type);
  for (const uint64_t d : shape) n *= d;
  return n;
}

uint64_t safetensors_size(std::span<const TensorPlan> tensors) {
  uint64_t size = make_header(tensors, file_order(tensors)).size();
  for (const TensorPlan& t : tensors) size += t.bytes();
  return size;
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorPlan> tensors,
                       const std::function<std::span<const std::byte>(size_t)>& data) {
  const std::vector<size_t> order = file_order(tensors);
  AtomicFile file(path);
  file.write(make_header(tensors, order));
  for (const size_t i : order) {
    const std::span<const std::byte> bytes = data(i);
    if (bytes.size() != tensors[i].bytes()) {
      throw Error(ErrorCode::kInternal, path.string() + ": tensor " + printable(tensors[i].name) + ": " +
                                            std::to_string(tensors[i].bytes()) + " bytes were planned, " +
                                            std::to_string(bytes.size()) + " came");
    }
    file.write(bytes);
  }
  file.commit();
}

}  // namespace bw::io
