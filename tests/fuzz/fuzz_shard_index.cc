// model.safetensors.index.json beside two shards.
#include "fuzz/folder.h"
#include "fuzz/target.h"
#include "io/safetensors.h"

using namespace bw;

namespace {

std::string shard(const std::string& tensor) {
  const std::string header = R"({")" + tensor + R"(":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  return std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + "xy";
}

struct TwoShards : fuzz::Folder {
  TwoShards() {
    write("a.safetensors", shard("a"));
    write("b.safetensors", shard("b"));
  }
};

}  // namespace

BW_FUZZ_TARGET(shard_index, input) {
  static const TwoShards folder;
  folder.write("model.safetensors.index.json", input);
  const io::ShardSet shards(folder.path());
  fuzz::require(shards.entries().size() == 2 && shards.file_of("a") == "a.safetensors", "a tensor is lost");
}
