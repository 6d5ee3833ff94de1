// EXL2 linears and their weights, written by tools/make_exl2_fixtures.py.
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "bitwright/error.h"
#include "codec/exl2.h"
#include "quant/gptq.h"
#include "quant/random_matrix.h"

namespace bw::codec {
namespace {

const io::ShardSet& fixture() {
  static const io::ShardSet set(std::filesystem::path(BW_FIXTURES) / "codec" / "exl2.safetensors");
  return set;
}

std::vector<std::string> stored_linears() {
  std::vector<std::string> keys;
  for (const io::TensorEntry* e : fixture().entries()) {
    const size_t at = e->name.find(".q_weight");
    if (at != std::string::npos) keys.push_back(e->name.substr(0, at));
  }
  return keys;
}

TEST(Exl2Fixture, LoadsToTheExpectedWeights) {
  ThreadPool pool(2);
  ASSERT_EQ(stored_linears().size(), 7u);
  for (const std::string& key : stored_linears()) {
    EXPECT_TRUE(is_stored(fixture(), key));
    const io::TensorData weight = fixture().require(key + ".weight");
    std::vector<float> expected(weight.shape()[0] * weight.shape()[1]);
    io::read_floats(weight, expected);
    const quant::QuantizedLinear q = unpack(pool, load(fixture(), key, static_cast<uint32_t>(weight.shape()[0])), key);
    const Matrix<float> w = quant::dequantize(pool, q);
    ASSERT_EQ(w.rows(), weight.shape()[0]);
    ASSERT_EQ(w.cols(), weight.shape()[1]);
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(w.span()[i], expected[i]) << key << " at " << i;
  }
}

TEST(Exl2Fixture, PacksToTheSameBytes) {
  ThreadPool pool(2);
  for (const std::string& key : stored_linears()) {
    const auto out = static_cast<uint32_t>(fixture().require(key + ".weight").shape()[0]);
    const quant::QuantizedLinear q = unpack(pool, load(fixture(), key, out), key);
    const Exl2Linear p = pack(pool, q);
    const std::vector<io::TensorPlan> plans = tensor_plans(key, q.layout, out);
    for (size_t i = 0; i < plans.size(); ++i) {
      const io::TensorData stored = fixture().require(plans[i].name, plans[i].shape);
      EXPECT_EQ(stored.type(), plans[i].type);
      const std::span<const std::byte> bytes = tensor_bytes(p, i);
      ASSERT_EQ(bytes.size(), stored.bytes.size()) << plans[i].name;
      EXPECT_EQ(std::memcmp(bytes.data(), stored.bytes.data(), bytes.size()), 0) << plans[i].name;
    }
  }
}

TEST(Exl2Fixture, SurvivesAFileOfItsOwn) {
  ThreadPool pool(2);
  const auto path = std::filesystem::temp_directory_path() / ("bw_exl2_" + std::to_string(getpid()) + ".safetensors");
  const quant::Layout layout{{{6, 64, 32}, {3, 96, 64}}};
  const Exl2Linear p = pack(pool, quant::random_codes(layout, 40, 3));
  const std::vector<io::TensorPlan> plans = tensor_plans("a.q", layout, 40);
  io::write_safetensors(path, plans, [&](size_t i) { return tensor_bytes(p, i); });
  {
    const io::ShardSet set(path);
    const Exl2Linear back = load(set, "a.q", 40);
    for (size_t i = 0; i < 5; ++i) {
      ASSERT_EQ(tensor_bytes(p, i).size(), tensor_bytes(back, i).size());
      EXPECT_EQ(std::memcmp(tensor_bytes(p, i).data(), tensor_bytes(back, i).data(), tensor_bytes(p, i).size()), 0);
    }
    EXPECT_EQ(back.in, 160u);
    EXPECT_FALSE(is_stored(set, "a"));
  }
  std::filesystem::remove(path);
}

// One tensor at a time absent, of another type, or of other dimensions.
TEST(Exl2Fixture, LoadRefusesWrongTensors) {
  const auto path =
      std::filesystem::temp_directory_path() / ("bw_exl2_bad_" + std::to_string(getpid()) + ".safetensors");
  const std::vector<std::byte> zeros(1 << 16);
  for (size_t i = 0; i < 5; ++i) {
    for (int kind = 0; kind < 4; ++kind) {
      std::vector<io::TensorPlan> plans = tensor_plans("a.q", quant::uniform_layout(32, 4, 32), 32);
      if (kind == 0) plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(i));
      if (kind == 1) plans[i].type = io::TensorType::kF32;
      if (kind == 2) plans[i].shape.push_back(1);
      if (kind == 3) plans[i].shape = {};
      io::write_safetensors(path, plans, [&](size_t t) { return std::span(zeros).first(plans[t].bytes()); });
      const io::ShardSet set(path);
      try {
        load(set, "a.q", 32);
        ADD_FAILURE() << "accepted tensor " << i << ", kind " << kind;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kModel);
        EXPECT_NE(std::string(e.what()).find("a.q"), std::string::npos) << e.what();
      }
    }
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace bw::codec
