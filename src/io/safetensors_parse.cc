#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "bitwright/error.h"
#include "io/json.h"
#include "io/printable.h"
#include "io/safetensors.h"

namespace bw::io {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own library
constexpr size_t kMaxDimensions = 32;

struct TypeRow {
  TensorType type;
  std::string_view name;
  size_t size;
};
constexpr std::array kTypes = {
    TypeRow{TensorType::kF64, "F64", 8},        TypeRow{TensorType::kF32, "F32", 4},
    TypeRow{TensorType::kF16, "F16", 2},        TypeRow{TensorType::kBF16, "BF16", 2},
    TypeRow{TensorType::kF8E4M3, "F8_E4M3", 1}, TypeRow{TensorType::kF8E5M2, "F8_E5M2", 1},
    TypeRow{TensorType::kI64, "I64", 8},        TypeRow{TensorType::kI32, "I32", 4},
    TypeRow{TensorType::kI16, "I16", 2},        TypeRow{TensorType::kI8, "I8", 1},
    TypeRow{TensorType::kU64, "U64", 8},        TypeRow{TensorType::kU32, "U32", 4},
    TypeRow{TensorType::kU16, "U16", 2},        TypeRow{TensorType::kU8, "U8", 1},
    TypeRow{TensorType::kBool, "BOOL", 1},
};

const TypeRow& row_of(TensorType type) {
  const auto at = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& row) { return row.type == type; });
  BW_CHECK(at != kTypes.end());
  return *at;
}

// Everything an error of one header needs to say where it stands.
struct Where {
  std::string_view file;
  std::string_view tensor;

  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const {
    std::string text(file);
    if (!tensor.empty()) text += ": tensor " + printable(tensor);
    throw Error(ErrorCode::kModel, text + ": " + what, hint);
  }
};

std::string text_of(const Json& value) { return printable(value.dump(-1, ' ', true, Json::error_handler_t::replace)); }

std::vector<uint64_t> read_counts(const Json& object, const char* key, const Where& where) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_array()) where.fail(std::string("'") + key + "' is not a list");
  if (at->size() > kMaxDimensions)
    where.fail(std::string("'") + key + "' has " + std::to_string(at->size()) + " numbers");
  std::vector<uint64_t> counts;
  for (const Json& value : *at) {
    if (!value.is_number_unsigned()) where.fail(std::string("'") + key + "' holds " + text_of(value) + ", not a count");
    counts.push_back(value.get<uint64_t>());
  }
  return counts;
}

// Bytes of the shape, or an error. Zeros count as ones while we look for overflow: [2^63, 4, 0] is no honest shape.
uint64_t shape_bytes(const std::vector<uint64_t>& shape, TensorType type, const Where& where) {
  uint64_t product = element_size(type);
  bool empty = false;
  for (const uint64_t n : shape) {
    empty = empty || n == 0;
    if (__builtin_mul_overflow(product, std::max<uint64_t>(n, 1), &product)) {
      where.fail("the product of its shape " + text_of(Json(shape)) + " does not fit in 64 bits");
    }
  }
  return empty ? 0 : product;
}

// `offset` still counts from the start of the data.
TensorEntry read_entry(const std::string& name, const Json& value, std::string_view file) {
  const Where where{file, name};
  if (!value.is_object()) where.fail("its entry in the header is not an object");
  const auto dtype = value.find("dtype");
  if (dtype == value.end() || !dtype->is_string()) where.fail("'dtype' is not a string");
  const std::optional<TensorType> type = type_from_name(dtype->get_ref<const std::string&>());
  if (!type) where.fail("unknown dtype " + text_of(*dtype));

  TensorEntry entry;
  entry.name = name;
  entry.type = *type;
  entry.shape = read_counts(value, "shape", where);
  entry.bytes = shape_bytes(entry.shape, entry.type, where);
  const std::vector<uint64_t> ends = read_counts(value, "data_offsets", where);
  if (ends.size() != 2 || ends[0] > ends[1]) where.fail("'data_offsets' is not [begin, end]");
  if (ends[1] - ends[0] != entry.bytes) {
    where.fail("'data_offsets' span " + std::to_string(ends[1] - ends[0]) + " bytes, but " +
               std::string(type_name(*type)) + " " + text_of(Json(entry.shape)) + " takes " +
               std::to_string(entry.bytes));
  }
  entry.offset = ends[0];
  return entry;
}

// Sorts by offset and checks that the tensors fill the data from its first byte to its last, each byte once.
void check_layout(std::vector<TensorEntry>& tensors, uint64_t data_begin, uint64_t file_bytes, std::string_view file) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  uint64_t end = 0;
  for (const TensorEntry& t : tensors) end = std::max(end, t.offset + t.bytes);
  if (end > file_bytes - data_begin) {
    const uint64_t promised = end > std::numeric_limits<uint64_t>::max() - data_begin
                                  ? std::numeric_limits<uint64_t>::max()
                                  : data_begin + end;
    Where{file, {}}.fail(std::to_string(file_bytes) + " bytes, but its header promises " + std::to_string(promised) +
                             " (incomplete download?)",
                         "download it again");
  }
  uint64_t at = 0;
  for (TensorEntry& t : tensors) {
    const Where where{file, t.name};
    if (t.offset < at) where.fail("its data overlap those of another tensor");
    if (t.offset > at) {
      where.fail("a gap of " + std::to_string(t.offset - at) + " bytes before its data");
    }
    at += t.bytes;
    t.offset += data_begin;
  }
  if (at != file_bytes - data_begin) {
    Where{file, {}}.fail(std::to_string(file_bytes - data_begin - at) + " bytes after the data of the last tensor");
  }
}

std::map<std::string, std::string> read_metadata(const Json& value, std::string_view file) {
  const Where where{file, {}};
  if (!value.is_object()) where.fail("'__metadata__' is not an object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) where.fail("'__metadata__' holds " + text_of(text) + ", not a string");
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

}  // namespace

size_t element_size(TensorType type) { return row_of(type).size; }

std::string_view type_name(TensorType type) { return row_of(type).name; }

std::optional<TensorType> type_from_name(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

uint64_t TensorEntry::elements() const {
  uint64_t n = 1;
  for (const uint64_t d : shape) n *= d;
  return n;
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> image, uint64_t file_bytes, std::string_view name) {
  const Where where{name, {}};
  uint64_t length = 0;
  if (file_bytes < sizeof(length) || image.size() < sizeof(length)) {
    where.fail(std::to_string(file_bytes) + " bytes are too few for a safetensors file (incomplete download?)");
  }
  static_assert(std::endian::native == std::endian::little, "the format is little-endian");
  std::memcpy(&length, image.data(), sizeof(length));
  if (length > kMaxHeaderBytes) {
    where.fail("not a safetensors file: a header of " + std::to_string(length) + " bytes, at most " +
               std::to_string(kMaxHeaderBytes) + " are allowed");
  }
  if (length > file_bytes - sizeof(length) || length > image.size() - sizeof(length)) {
    where.fail("a header of " + std::to_string(length) + " bytes in a file of " + std::to_string(file_bytes) +
                   " bytes (incomplete download?)",
               "download it again");
  }
  const std::string_view text(reinterpret_cast<const char*>(image.data()) + sizeof(length),
                              static_cast<size_t>(length));
  const Json json = parse_json(text, name);
  if (!json.is_object()) where.fail("the header is not a JSON object");

  SafetensorsHeader header;
  header.data_begin = sizeof(length) + length;
  for (const auto& [key, value] : json.items()) {
    if (key == "__metadata__") {
      header.metadata = read_metadata(value, name);
    } else {
      header.tensors.push_back(read_entry(key, value, name));
    }
  }
  check_layout(header.tensors, header.data_begin, file_bytes, name);
  return header;
}

}  // namespace bw::io
