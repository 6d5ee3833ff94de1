// Directories of safetensors as people have them: sharded, cut short, stale, linked, read-only.
#include <gtest/gtest.h>

#include "io/file_write.h"
#include "io/safetensors.h"
#include "support/errors.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace bw::io {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::make_tiny_model;
using test::TempDir;

constexpr const char* kIndex = "model.safetensors.index.json";

TEST(ShardSet, OneFileNeedsNoIndex) {
  const TempDir dir;
  const test::TinyModel model = make_tiny_model();
  model.save(dir.path());
  const ShardSet set(dir.path());
  EXPECT_EQ(set.entries().size(), model.tensors.size());
  EXPECT_TRUE(set.warnings().empty());
  EXPECT_EQ(set.file_of("model.norm.weight"), "model.safetensors");
  EXPECT_EQ(set.file_of("nothing"), "");
  EXPECT_EQ(set.file_bytes(), fs::file_size(dir / "model.safetensors"));
}

TEST(ShardSet, ShardsAreOneNameSpace) {
  const TempDir dir;
  test::TinyModel model = make_tiny_model();
  model.save(dir.path(), TensorType::kF32, 3);
  const ShardSet set(dir.path());
  EXPECT_EQ(set.entries().size(), model.tensors.size());
  EXPECT_TRUE(set.warnings().empty());
  for (const test::TinyTensor& t : model.tensors) {
    std::vector<float> values(t.values.size());
    read_floats(set.require(t.name, t.shape), values);
    EXPECT_EQ(values, t.values) << t.name;
    set.prefetch(t.name);
    set.release(t.name);
  }
  set.prefetch("nothing");
  set.release("nothing");
  const std::vector<const TensorEntry*> entries = set.entries();
  EXPECT_TRUE(std::is_sorted(entries.begin(), entries.end(), [](auto* a, auto* b) { return a->name < b->name; }));
}

TEST(ShardSet, FindMayFailRequireNames) {
  const TempDir dir;
  make_tiny_model().save(dir.path());
  const ShardSet set(dir.path());
  EXPECT_EQ(set.find_entry("nothing"), nullptr);
  EXPECT_FALSE(set.find("nothing"));
  expect_error([&] { set.require("model.layers.9.x"); }, ErrorCode::kModel,
               {dir.path().string(), "model.layers.9.x", "missing"});
  const std::array<uint64_t, 2> shape = {64, 63};
  expect_error(
      [&] { set.require("model.layers.0.self_attn.q_proj.weight", shape); }, ErrorCode::kModel,
      {"model.safetensors", "model.layers.0.self_attn.q_proj.weight", "expected shape [64,63]", "found [64,64]"});
}

TEST(ShardSet, NamesAShardThatWasCutShort) {
  const TempDir dir;
  make_tiny_model().save(dir.path(), TensorType::kF16, 2);
  const fs::path shard = dir / "model-00002-of-00002.safetensors";
  const uint64_t whole = fs::file_size(shard);
  fs::resize_file(shard, whole / 2);
  expect_error([&] { ShardSet set(dir.path()); }, ErrorCode::kModel,
               {"model-00002-of-00002.safetensors", std::to_string(whole / 2) + " bytes",
                "promises " + std::to_string(whole), "download it again"});
  for (const uintmax_t size : {0, 7, 8, 100}) {
    fs::resize_file(shard, size);
    expect_error([&] { ShardSet set(dir.path()); }, ErrorCode::kModel, {"model-00002-of-00002.safetensors"});
  }
}

TEST(ShardSet, ListsMissingShards) {
  const TempDir dir;
  const test::TinyModel model = make_tiny_model();
  model.save(dir.path(), TensorType::kF16, 4);
  fs::remove(dir / "model-00002-of-00004.safetensors");
  fs::remove(dir / "model-00003-of-00004.safetensors");
  const size_t n = model.tensors.size();
  expect_error([&] { ShardSet set(dir.path()); }, ErrorCode::kModel,
               {"2 shards that are not there",
                "model-00002-of-00004.safetensors (" + std::to_string(n * 2 / 4 - n / 4) + " tensors)",
                "model-00003-of-00004.safetensors"});
  fs::remove(dir / "model-00001-of-00004.safetensors");
  fs::remove(dir / "model-00004-of-00004.safetensors");
  expect_error([&] { ShardSet set(dir.path()); }, ErrorCode::kModel, {"4 shards that are not there"});
}

TEST(ShardSet, AStaleIndexIsNotBelieved) {
  const TempDir dir, other;
  make_tiny_model().save(dir.path());
  make_tiny_model().save(other.path(), TensorType::kF16, 3);
  fs::copy_file(other / kIndex, dir / kIndex);
  const ShardSet set(dir.path());
  ASSERT_EQ(set.warnings().size(), 1u);
  EXPECT_NE(set.warnings()[0].find("stale"), std::string::npos) << set.warnings()[0];
}

TEST(ShardSet, RefusesAnIndexThatIsNone) {
  const TempDir dir;
  make_tiny_model().save(dir.path());
  for (const char* bad : {"[]", "{}", "{\"weight_map\": 3}", "{\"weight_map\": {\"a\": 3}}", "{"}) {
    write_file(dir / kIndex, bad);
    expect_error([&] { ShardSet set(dir.path()); }, ErrorCode::kModel, {kIndex});
  }
}

TEST(ShardSet, ATensorInTwoShardsMustBeTheSame) {
  const TempDir dir;
  test::TinyModel model = make_tiny_model();
  model.save(dir.path());
  const test::TinyTensor norm = model.at("model.norm.weight");
  test::save_tensors(dir / "old.safetensors", {norm}, {TensorType::kF16});
  const ShardSet set(dir.path());
  ASSERT_EQ(set.warnings().size(), 1u);
  EXPECT_NE(set.warnings()[0].find("equal values"), std::string::npos) << set.warnings()[0];
  EXPECT_EQ(set.entries().size(), model.tensors.size());

  test::TinyTensor changed = norm;
  changed.values[3] += 1;
  test::save_tensors(dir / "old.safetensors", {changed}, {TensorType::kF16});
  const std::initializer_list<std::string_view> words = {"model.norm.weight", "model.safetensors", "old.safetensors",
                                                         "different"};
  expect_error([&] { ShardSet again(dir.path()); }, ErrorCode::kModel, words);
  test::save_tensors(dir / "old.safetensors", {norm}, {TensorType::kF32});
  expect_error([&] { ShardSet again(dir.path()); }, ErrorCode::kModel, words);
}

TEST(ShardSet, SaysWhatIsThereInsteadOfSafetensors) {
  const TempDir dir;
  expect_error([&] { ShardSet set(dir.path()); }, ErrorCode::kModel, {dir.path().string(), "no *.safetensors file"});
  expect_error([&] { ShardSet set(dir / "none"); }, ErrorCode::kModel, {"none: no such file or directory"});
  write_file(dir / "pytorch_model.bin", "");
  expect_error([&] { ShardSet set(dir.path()); }, ErrorCode::kModel,
               {"PyTorch weights (pytorch_model.bin)", "save_pretrained"});
  fs::rename(dir / "pytorch_model.bin", dir / "m.gguf");
  expect_error([&] { ShardSet set(dir.path()); }, ErrorCode::kModel, {"GGUF file (m.gguf)"});
}

TEST(ShardSet, FollowsTheLinksOfAHubCache) {
  const TempDir dir;
  make_tiny_model().save(dir / "blobs");
  fs::create_directories(dir / "snapshots/abc");
  fs::create_symlink("../../blobs/model.safetensors", dir / "snapshots/abc/model.safetensors");
  EXPECT_FALSE(ShardSet(dir / "snapshots/abc").entries().empty());
  EXPECT_FALSE(ShardSet(dir / "snapshots/abc/model.safetensors").entries().empty());
  fs::remove(dir / "blobs/model.safetensors");
  for (const char* path : {"snapshots/abc", "snapshots/abc/model.safetensors"}) {
    expect_error([&] { ShardSet set(dir / path); }, ErrorCode::kIo,
                 {"snapshots/abc/model.safetensors", "blob is missing"});
  }
}

TEST(ShardSet, WorksInOddAndReadOnlyFolders) {
  const TempDir dir;
  const fs::path odd = dir / "my models" / "ü 'x\" " / "T ";
  make_tiny_model().save(odd);
  fs::permissions(odd, fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write,
                  fs::perm_options::remove);
  EXPECT_FALSE(ShardSet(odd).entries().empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(odd), fs::directory_iterator()), 2);
  fs::permissions(odd, fs::perms::owner_write, fs::perm_options::add);
}

}  // namespace
}  // namespace bw::io
