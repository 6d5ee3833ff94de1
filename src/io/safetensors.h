// The safetensors container: 8 bytes header length, JSON header, data. Headers are untrusted: every count is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitwright/error.h"
#include "io/file_map.h"

namespace bw::io {

enum class TensorType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool
};

// Bytes of one element.
size_t element_size(TensorType type);
// The name in the header ("BF16"), and back (nullopt for a name that is not known).
std::string_view type_name(TensorType type);
std::optional<TensorType> type_from_name(std::string_view name);

// Where a tensor lies. Offsets count from the start of the file and have been checked against its size.
struct TensorEntry {
  std::string name;
  TensorType type{};
  std::vector<uint64_t> shape;
  uint64_t offset = 0;  // bytes
  uint64_t bytes = 0;   // == elements() * element_size(type)
  uint64_t elements() const;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;             // in order of offset
  std::map<std::string, std::string> metadata;  // "__metadata__"
  uint64_t data_begin = 0;                      // bytes before the data
};

// Parses a whole file image (or its first bytes: `file_bytes` is the size of the file). Throws Error(kModel) beginning
// with `name` for: short file, header length beyond the file or 100 MB, bad JSON, unknown dtype, shape whose product
// overflows, offsets that do not match dtype × shape, overlap, gaps, data beyond the end ("... (incomplete
// download?)").
SafetensorsHeader parse_safetensors(std::span<const std::byte> image, uint64_t file_bytes, std::string_view name);

// A tensor in mapped memory: valid while its ShardSet lives.
struct TensorData {
  const TensorEntry* entry = nullptr;
  std::span<const std::byte> bytes;
  TensorType type() const { return entry->type; }
  const std::vector<uint64_t>& shape() const { return entry->shape; }
};

// All *.safetensors of a directory (or one file) as one name space. Thread-safe for reading after construction.
class ShardSet {
 public:
  // Opens and checks every shard. Throws Error(kModel): no safetensors there (naming pytorch_model.bin where that is
  // what there is), shards that model.safetensors.index.json names and that are absent (all of them, with their tensor
  // counts), the same tensor in two shards with different bytes. Warnings (stale index, equal duplicates) go to
  // `warnings`. With `on_error` nothing is thrown: it is told of every error, and what can be read is there (of a
  // tensor with two values the first).
  using ErrorSink = std::function<void(const Error&)>;
  explicit ShardSet(const std::filesystem::path& path, const ErrorSink& on_error = {});

  // Null if absent.
  const TensorEntry* find_entry(std::string_view name) const;
  std::optional<TensorData> find(std::string_view name) const;
  // Throws Error(kModel) naming the tensor and the directory if absent.
  TensorData require(std::string_view name) const;
  // The same, and the shape must be `shape`: else Error(kModel) with the tensor, expected and found shapes.
  TensorData require(std::string_view name, std::span<const uint64_t> shape) const;
  // Hints: the tensor's pages will be read soon / not any more.
  void prefetch(std::string_view name) const;
  void release(std::string_view name) const;

  std::vector<const TensorEntry*> entries() const;  // sorted by name
  const std::vector<std::string>& warnings() const { return warnings_; }
  const std::filesystem::path& path() const { return path_; }
  // Name of the shard file that holds the tensor; empty if absent.
  std::string file_of(std::string_view name) const;
  uint64_t file_bytes() const;  // of all shards together

 private:
  struct Shard {
    FileMap map;
    SafetensorsHeader header;
    std::string file;
  };
  struct Place {
    size_t shard = 0, tensor = 0;
  };
  TensorData at(Place place) const;
  void check_duplicate(Place first, Place second);

  std::filesystem::path path_;
  std::vector<Shard> shards_;
  std::map<std::string, Place, std::less<>> places_;
  std::vector<std::string> warnings_;
};

// Converts `count` elements from byte data of a float type (F32, F16, BF16, F64) to float. Other types: Error(kModel).
void convert_to_float(TensorType type, std::span<const std::byte> bytes, std::span<float> out);
// The same of a whole tensor; out.size() == elements. The error names the tensor.
void read_floats(const TensorData& tensor, std::span<float> out);

// What a file will hold; the sizes are known before the data.
struct TensorPlan {
  std::string name;
  TensorType type{};
  std::vector<uint64_t> shape;
  uint64_t bytes() const;
};
// Exact size of the safetensors file that write_safetensors makes of these, in bytes.
uint64_t safetensors_size(std::span<const TensorPlan> tensors);
// Writes `path` atomically. `data(i)` gives the bytes of tensors[i], once for each i, in the order of the file: tensors
// of larger elements first (readers want each aligned to its element), else as given. A wrong size is Error(kInternal).
// The header is padded with spaces to a multiple of 8 bytes; metadata is {"format": "pt"}.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorPlan> tensors,
                       const std::function<std::span<const std::byte>(size_t)>& data);

}  // namespace bw::io
