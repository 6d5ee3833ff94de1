// The forward pass on the model fixtures against what transformers computed (tools/make_model_fixtures.py).
#include <algorithm>
#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "nn/decoder.h"

namespace bw::nn {
namespace {

namespace fs = std::filesystem;
using backend::Tensor;

std::vector<float> floats(const io::ShardSet& set, const char* name) {
  const io::TensorData t = set.require(name);
  std::vector<float> v(t.entry->elements());
  io::read_floats(t, v);
  return v;
}

std::vector<uint32_t> ids_of(const io::ShardSet& set) {
  const io::TensorData t = set.require("ids");
  const auto* ids = reinterpret_cast<const int32_t*>(t.bytes.data());
  return {ids, ids + t.entry->elements()};
}

void expect_near(std::span<const float> got, std::span<const float> want, float tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  float worst = 0;
  for (size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::isnan(got[i]) ? INFINITY : std::abs(got[i] - want[i]));
  EXPECT_LT(worst, tolerance) << what;
}

// hidden: (layers + 1, rows, hidden) and hidden_last: (layers + 1, hidden) of the golden file.
void expect_states(const Tensor& h, size_t state, const io::ShardSet& golden, backend::Backend& device) {
  std::vector<float> got(h.rows * h.cols);
  device.read(h, got, "test");
  const auto first = floats(golden, "hidden"), last = floats(golden, "hidden_last");
  const size_t rows = golden.require("hidden").shape()[1], n = rows * h.cols;
  const std::string where = "after layer " + std::to_string(state);
  expect_near(std::span(got).first(n), std::span(first).subspan(state * n, n), 5e-5f, "first rows " + where);
  expect_near(std::span(got).last(h.cols), std::span(last).subspan(state * h.cols, h.cols), 5e-5f, "last row " + where);
}

void check(const fs::path& folder, const fs::path& golden_file) {
  SCOPED_TRACE(folder.filename().string() + "/" + golden_file.filename().string());
  const model::ModelDir dir(folder);
  const io::ShardSet golden(golden_file);
  const auto ids = ids_of(golden);
  const auto device = backend::make_cpu_backend(2);
  const Decoder decoder(*device, dir.config(), ids.size(), backend::Precision::kF32);
  Tensor h = device->allocate(ids.size(), dir.config().hidden);
  decoder.embed(dir, ids, h);
  expect_states(h, 0, golden, *device);
  for (size_t layer = 0; layer < dir.config().n_layers; ++layer) {
    const auto load = [&](const model::LinearInfo& info) { return dir.load_linear(info); };
    decoder.forward_layer(decoder.load_layer(dir, layer, load), layer, {1, ids.size()}, h);
    expect_states(h, layer + 1, golden, *device);
  }
  const Tensor norm = device->allocate(1, dir.config().hidden), logits = device->allocate(ids.size(), dir.vocab_rows());
  device->upload(norm, dir.load_final_norm());
  decoder.logits(h, norm, *decoder.prepare(dir.load_linear(dir.head())), logits);
  std::vector<float> got(logits.rows * logits.cols);
  device->read(logits, got, "test");
  expect_near(got, floats(golden, "logits"), 1e-4f, "logits");
}

TEST(Golden, ForwardMatchesTransformersOnEveryFixture) {
  size_t rows = 0;
  for (const auto& folder : fs::directory_iterator(fs::path(BW_FIXTURES) / "models")) {
    for (const char* file : {"golden.safetensors", "golden-2.safetensors"}) {
      if (!fs::exists(folder.path() / file)) continue;
      check(folder.path(), folder.path() / file);
      ++rows;
    }
  }
  EXPECT_GE(rows, 8u);
}

}  // namespace
}  // namespace bw::nn
