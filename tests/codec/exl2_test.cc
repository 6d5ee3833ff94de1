#include "codec/exl2.h"

#include <gtest/gtest.h>

#include "codec/packed.h"
#include "support/errors.h"

namespace bw::codec {
namespace {

using quant::Group;
using quant::HostLinear;
using quant::Layout;
using quant::random_codes;
using quant::uniform_layout;

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const int bits : quant::kBitWidths) {
    for (const uint32_t size : quant::kGroupSizes) {
      for (const uint32_t in : {32u, 96u, 256u, 288u}) all.push_back(uniform_layout(in, bits, size));
    }
  }
  all.push_back({{{8, 32, 32}, {6, 64, 64}, {5, 32, 32}, {4, 128, 128}, {3, 96, 64}, {2, 160, 128}}});
  all.push_back({{{6, 96, 64}, {3, 32, 128}}});
  return all;
}

void expect_same(const HostLinear& a, const HostLinear& b) {
  expect_same_bytes(a, b);
  const std::vector<Group> ga = a.layout.groups(), gb = b.layout.groups();
  ASSERT_EQ(ga.size(), gb.size());
  for (size_t g = 0; g < ga.size(); ++g) {
    EXPECT_EQ(ga[g].bits, gb[g].bits);
    EXPECT_EQ(ga[g].first, gb[g].first);
    EXPECT_EQ(ga[g].rows, gb[g].rows);
  }
}

class Exl2On : public quant::OnDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, Exl2On, testing::ValuesIn(test::kDevices));

TEST_P(Exl2On, UnpackUndoesPack) {
  const auto one_thread = test::make_device("cpu", 1);
  for (const Layout& layout : layouts()) {
    for (const uint32_t out : {1u, 31u, 32u, 100u}) {
      SCOPED_TRACE(testing::Message() << layout.to_string() << " x " << out);
      const HostLinear q = random_codes(layout, out, out);
      Exl2Linear p = pack_on(*device_, q);
      expect_same_bytes(p, pack_on(*one_thread, q));
      expect_same(q, unpack_on(*device_, std::move(p)));
    }
  }
}

// Reads single bits as the format describes them: value i of a group's column
// is bits [i * b, (i + 1) * b) of the stream.
TEST_P(Exl2On, BitsLieWhereTheFormatSays) {
  for (const Layout& layout : layouts()) {
    const HostLinear q = random_codes(layout, 40, 7);
    const Exl2Linear p = pack_on(*device_, q);
    const auto weight = p.q_weight.view<int32_t>(), scale = p.q_scale.view<int32_t>();
    const std::vector<Group> groups = layout.groups();
    ASSERT_EQ(p.q_groups.size(), 2 * groups.size());
    size_t first_word = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      ASSERT_EQ(p.q_groups[2 * g], groups[g].bits);
      ASSERT_EQ(static_cast<size_t>(p.q_groups[2 * g + 1]), first_word);
      for (size_t c = 0; c < 64; ++c) {
        for (uint32_t i = 0; i < groups[g].rows; ++i) {
          unsigned code = 0;
          for (int b = 0; b < groups[g].bits; ++b) {
            const size_t bit = i * static_cast<size_t>(groups[g].bits) + static_cast<size_t>(b);
            code |= (static_cast<uint32_t>(weight(first_word + bit / 32, c)) >> (bit % 32) & 1u) << b;
          }
          ASSERT_EQ(code, q.codes(groups[g].first + i, c)) << layout.to_string() << " group " << g << " value " << i;
        }
        ASSERT_EQ(static_cast<uint32_t>(scale(g, c / 8)) >> (4 * (c % 8)) & 15u, q.scale_codes(g, c));
      }
      first_word += groups[g].rows * static_cast<size_t>(groups[g].bits) / 32;
    }
    EXPECT_EQ(weight.rows, first_word);
    for (uint32_t r = 0; r < q.in; ++r) {
      ASSERT_EQ(static_cast<uint32_t>(p.q_invperm[static_cast<size_t>(q.order[r])]), r);
    }
    const auto maxima = p.q_scale_max.as<Half>();
    EXPECT_TRUE(std::equal(maxima.begin(), maxima.end(), q.scale_max.begin(), q.scale_max.end()));
  }
}

TEST_P(Exl2On, StoredBitsAreTheBytesOfTheTensors) {
  for (const Layout& layout : layouts()) {
    for (const uint32_t out : {1u, 32u, 33u, 100u}) {
      const Exl2Linear p = pack_on(*device_, random_codes(layout, out, 1));
      const std::vector<io::TensorPlan> plans = tensor_plans("k", layout, out);
      ASSERT_EQ(plans.size(), 5u);
      uint64_t planned = 0;
      for (size_t i = 0; i < 5; ++i) {
        ASSERT_EQ(tensor_bytes(p, i).size(), plans[i].bytes()) << plans[i].name;
        planned += plans[i].bytes();
      }
      EXPECT_EQ(stored_bits(layout, out), 8 * planned) << layout.to_string() << " x " << out;
    }
  }
}

TEST(Exl2, PlansNameTheTensorsAndTheirShapes) {
  const std::vector<io::TensorPlan> plans = tensor_plans("a.b", uniform_layout(64, 4, 32), 40);
  EXPECT_EQ(plans[0].name, "a.b.q_weight");
  EXPECT_EQ(plans[0].shape, (std::vector<uint64_t>{8, 64}));
  EXPECT_EQ(plans[1].name, "a.b.q_scale");
  EXPECT_EQ(plans[1].shape, (std::vector<uint64_t>{2, 8}));
  EXPECT_EQ(plans[2].name, "a.b.q_scale_max");
  EXPECT_EQ(plans[2].shape, (std::vector<uint64_t>{2}));
  EXPECT_EQ(plans[3].name, "a.b.q_groups");
  EXPECT_EQ(plans[3].shape, (std::vector<uint64_t>{4}));
  EXPECT_EQ(plans[4].name, "a.b.q_invperm");
  EXPECT_EQ(plans[4].shape, (std::vector<uint64_t>{64}));
  // Σ rows·bits·out + groups·(48 + 4·out) + 32·in for a multiple of 32.
  EXPECT_EQ(stored_bits({{{6, 96, 64}, {3, 32, 128}}}, 32), (96 * 6 + 32 * 3) * 32 + 3 * (48 + 4 * 32) + 32 * 128);
}

TEST(Exl2, KnowsWhatCanBeStored) {
  EXPECT_TRUE(can_store(32, 1));
  EXPECT_TRUE(can_store(65504, 100000));
  EXPECT_FALSE(can_store(65536, 32));
  EXPECT_FALSE(can_store(48, 32));
  EXPECT_FALSE(can_store(0, 32));
  EXPECT_FALSE(can_store(32, 0));
}

TEST_P(Exl2On, HoldsTheLargestMatrix) {
  const HostLinear q = random_codes(uniform_layout(65504, 8, 32), 1, 3);
  expect_same(q, unpack_on(*device_, pack_on(*device_, q)));
}

// Other writers mix group sizes between widths, take 16 rows at 2 bits, and end
// with a short group.
TEST_P(Exl2On, ReadsGroupsOfOtherWriters) {
  for (const Layout& layout : {Layout{{{5, 128, 128}, {4, 64, 64}, {2, 96, 32}}}, Layout{{{4, 256, 128}, {3, 96, 96}}},
                               Layout{{{6, 64, 32}, {2, 160, 64}}}, Layout{{{4, 64, 64}, {2, 96, 16}}}}) {
    const HostLinear q = random_codes(layout, 32, 4);
    expect_same(q, unpack_on(*device_, pack_on(*device_, q)));
  }
}

// Codes that their width cannot hold come back as others.
TEST_P(Exl2On, FinishRefusesWhatUnpackingDoesNotGiveBack) {
  const HostLinear good = random_codes({{{4, 64, 32}, {3, 64, 32}}}, 40, 6);
  const auto expect_refused = [&](const HostLinear& q) {
    test::expect_error([&] { pack_on(*device_, q, "model.k_proj"); }, ErrorCode::kInternal,
                       {"model.k_proj: unpacking does not give the packed codes back"});
  };
  for (const uint32_t row : {0u, 63u, 64u, 127u}) {
    HostLinear q = random_codes(good.layout, 40, 6);
    q.codes(row, 63) = row < 64 ? 16 : 8;
    expect_refused(q);
  }
  HostLinear q = random_codes(good.layout, 40, 6);
  q.scale_codes(3, 9) = 16;
  expect_refused(q);
  EXPECT_NO_THROW(pack_on(*device_, good));
}

}  // namespace
}  // namespace bw::codec
