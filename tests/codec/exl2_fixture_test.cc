// EXL2 linears and their weights, written by tools/make_exl2_fixtures.py.
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "codec/packed.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace bw::codec {
namespace {

const io::ShardSet& fixture() {
  static const io::ShardSet set(std::filesystem::path(BW_FIXTURES) / "codec" / "exl2.safetensors");
  return set;
}

// 80 rows, of which 48 have 2 bits: the format can store that, but no linear of a model has it.
constexpr const char* kBetweenSteps = "half_groups";

std::vector<std::string> stored_linears() {
  std::vector<std::string> keys;
  for (const io::TensorEntry* e : fixture().entries()) {
    const size_t at = e->name.find(".q_weight");
    if (at != std::string::npos && e->name.substr(0, at) != kBetweenSteps) keys.push_back(e->name.substr(0, at));
  }
  return keys;
}

class Exl2FixtureOn : public quant::OnDevice {
 protected:
  quant::QuantizedLinear unpacked(const std::string& key) const {
    const auto out = static_cast<uint32_t>(fixture().require(key + ".weight").shape()[0]);
    return unpack(*device_, load(*device_, fixture(), key, out), key);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, Exl2FixtureOn, testing::ValuesIn(test::kDevices));

TEST_P(Exl2FixtureOn, LoadsToTheExpectedWeights) {
  ASSERT_EQ(stored_linears().size(), 6u);
  for (const std::string& key : stored_linears()) {
    EXPECT_TRUE(is_stored(fixture(), key));
    const io::TensorData weight = fixture().require(key + ".weight");
    std::vector<float> expected(weight.shape()[0] * weight.shape()[1]);
    io::read_floats(weight, expected);
    const Matrix<float> w = quant::read_matrix<float>(*device_, quant::dequantize(*device_, unpacked(key)));
    ASSERT_EQ(w.rows(), weight.shape()[0]);
    ASSERT_EQ(w.cols(), weight.shape()[1]);
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(w.span()[i], expected[i]) << key << " at " << i;
  }
}

TEST_P(Exl2FixtureOn, RowsBetweenStepsAreRefused) {
  test::expect_error([&] { unpacked(kBetweenSteps); }, ErrorCode::kModel,
                     {"half_groups: damaged EXL2 tensors: 48 rows of 2 bits"});
  test::expect_error([&] { stored_layout(fixture(), kBetweenSteps); }, ErrorCode::kModel, {"half_groups"});
}

TEST_P(Exl2FixtureOn, PacksToTheSameBytes) {
  for (const std::string& key : stored_linears()) {
    const quant::QuantizedLinear q = unpacked(key);
    EXPECT_EQ(stored_layout(fixture(), key), q.layout);
    const Exl2Linear p = finish(*device_, pack(*device_, q), key);
    const std::vector<io::TensorPlan> plans = tensor_plans(key, q.layout, q.out);
    for (size_t i = 0; i < plans.size(); ++i) {
      const io::TensorData stored = fixture().require(plans[i].name, plans[i].shape);
      EXPECT_EQ(stored.type(), plans[i].type);
      const std::span<const std::byte> bytes = tensor_bytes(p, i);
      ASSERT_EQ(bytes.size(), stored.bytes.size()) << plans[i].name;
      EXPECT_EQ(std::memcmp(bytes.data(), stored.bytes.data(), bytes.size()), 0) << plans[i].name;
    }
  }
}

TEST_P(Exl2FixtureOn, SurvivesAFileOfItsOwn) {
  const test::TempDir dir;
  const quant::Layout layout{{{6, 64, 32}, {3, 96, 64}}};
  const Exl2Linear p = pack_on(*device_, quant::random_codes(layout, 40, 3));
  const std::vector<io::TensorPlan> plans = tensor_plans("a.q", layout, 40);
  io::write_safetensors(dir / "a.safetensors", plans, [&](size_t i) { return tensor_bytes(p, i); });
  const io::ShardSet set(dir / "a.safetensors");
  const Exl2Linear back = load(*device_, set, "a.q", 40);
  expect_same_bytes(p, back);
  EXPECT_EQ(back.in, 160u);
  EXPECT_EQ(stored_layout(set, "a.q"), layout);
  EXPECT_FALSE(is_stored(set, "a"));
}

// One tensor at a time absent, of another type, or of other dimensions.
TEST(Exl2Fixture, LoadRefusesWrongTensors) {
  const test::TempDir dir;
  const auto device = test::make_device("cpu", 1);
  const std::vector<std::byte> zeros(1 << 16);
  for (size_t i = 0; i < 5; ++i) {
    for (int kind = 0; kind < 4; ++kind) {
      SCOPED_TRACE(testing::Message() << "tensor " << i << ", kind " << kind);
      std::vector<io::TensorPlan> plans = tensor_plans("a.q", quant::uniform_layout(32, 4, 32), 32);
      if (kind == 0) plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(i));
      if (kind == 1) plans[i].type = io::TensorType::kF32;
      if (kind == 2) plans[i].shape.push_back(1);
      if (kind == 3) plans[i].shape = {};
      io::write_safetensors(dir / "bad.safetensors", plans,
                            [&](size_t t) { return std::span(zeros).first(plans[t].bytes()); });
      const io::ShardSet set(dir / "bad.safetensors");
      test::expect_error([&] { load(*device, set, "a.q", 32); }, ErrorCode::kModel, {"a.q"});
    }
  }
}

}  // namespace
}  // namespace bw::codec
