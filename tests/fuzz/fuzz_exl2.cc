// The five tensors of a stored linear, each with a dtype, a shape and data of its own.
#include <array>

#include "backend/backend.h"
#include "codec/exl2.h"
#include "fuzz/folder.h"
#include "fuzz/target.h"
#include "io/json.h"
#include "model/tensor_names.h"

using namespace bw;

namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 16;  // of one tensor

struct Tensor {
  io::TensorPlan plan;
  std::string data;
};

// One byte for dtype and number of dimensions, two for each dimension; data that the input lacks are zeros.
Tensor take_tensor(fuzz::Reader& input, std::string_view suffix) {
  static constexpr std::array kTypes = {io::TensorType::kI32, io::TensorType::kF16, io::TensorType::kI16,
                                        io::TensorType::kU8};
  const auto kind = input.take<uint8_t>();
  Tensor t{{std::string("x").append(suffix), kTypes[kind % kTypes.size()], {}}, {}};
  for (int i = 0; i < kind / 4 % 4; ++i) t.plan.shape.push_back(input.take<uint16_t>());
  uint64_t bytes = io::element_size(t.plan.type);
  for (const uint64_t n : t.plan.shape) bytes = std::min(bytes * n, kMostBytes + 1);
  if (bytes > kMostBytes) t.plan.shape = {bytes = 0};
  t.data = input.take_bytes(bytes);
  t.data.resize(bytes);
  return t;
}

std::string file_of(const std::array<Tensor, 5>& tensors) {
  io::Json header = io::Json::object();
  std::string data;
  for (const Tensor& t : tensors) {
    header[t.plan.name] = {{"dtype", io::type_name(t.plan.type)},
                           {"shape", t.plan.shape},
                           {"data_offsets", {data.size(), data.size() + t.data.size()}}};
    data += t.data;
  }
  const std::string text = header.dump();
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(text.size() >> (8 * i));
  return file + text + data;
}

}  // namespace

BW_FUZZ_TARGET(exl2, input) {
  static const fuzz::Folder folder;
  static const std::unique_ptr<backend::Backend> device = backend::make_cpu_backend(1);
  fuzz::Reader reader(input);
  const auto out = reader.take<uint16_t>();
  std::array<Tensor, 5> tensors;
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i] = take_tensor(reader, model::kPackedSuffixes[i]);
  const io::ShardSet shards(folder.write("x.safetensors", file_of(tensors)));
  fuzz::require(codec::is_stored(shards, "x"), "a stored linear is not seen");
  const quant::Layout layout = codec::stored_layout(shards, "x");
  const quant::QuantizedLinear q = codec::unpack(*device, codec::load(*device, shards, "x", out), "x");
  fuzz::require(q.layout == layout, "two readings of the groups");
  const codec::Exl2Linear again = codec::finish(*device, codec::pack(*device, q), "x");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto bytes = codec::tensor_bytes(again, i);
    fuzz::require(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()) == tensors[i].data,
                  "packing does not give the tensors back");
  }
}
