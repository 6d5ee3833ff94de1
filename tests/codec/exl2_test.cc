#include "codec/exl2.h"

#include <cstring>

#include <gtest/gtest.h>

#include "bitwright/error.h"
#include "quant/random_matrix.h"

namespace bw::codec {
namespace {

using quant::Group;
using quant::Layout;
using quant::QuantizedLinear;
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

bool equal(const Matrix<uint8_t>& a, const Matrix<uint8_t>& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() && std::memcmp(a.data(), b.data(), a.span().size()) == 0;
}

void expect_same(const QuantizedLinear& a, const QuantizedLinear& b) {
  EXPECT_EQ(a.in, b.in);
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(a.order, b.order);
  EXPECT_TRUE(equal(a.codes, b.codes));
  EXPECT_TRUE(equal(a.scale_codes, b.scale_codes));
  EXPECT_EQ(a.scale_max, b.scale_max);
  const std::vector<Group> ga = a.layout.groups(), gb = b.layout.groups();
  ASSERT_EQ(ga.size(), gb.size());
  for (size_t g = 0; g < ga.size(); ++g) {
    EXPECT_EQ(ga[g].bits, gb[g].bits);
    EXPECT_EQ(ga[g].first, gb[g].first);
    EXPECT_EQ(ga[g].rows, gb[g].rows);
  }
}

TEST(Exl2, UnpackUndoesPack) {
  ThreadPool pool(2), one(1);
  for (const Layout& layout : layouts()) {
    for (const uint32_t out : {1u, 31u, 32u, 100u}) {
      SCOPED_TRACE(testing::Message() << layout.to_string() << " x " << out);
      const QuantizedLinear q = random_codes(layout, out, out);
      const Exl2Linear p = pack(pool, q);
      expect_same(q, unpack(pool, p, "x"));
      const Exl2Linear again = pack(one, q);
      EXPECT_EQ(std::memcmp(p.q_weight.data(), again.q_weight.data(), p.q_weight.span().size_bytes()), 0);
    }
  }
}

// Reads single bits as the format describes them: value i of a group's column is bits [i * b, (i + 1) * b) of the
// stream.
TEST(Exl2, BitsLieWhereTheFormatSays) {
  ThreadPool pool(2);
  for (const Layout& layout : layouts()) {
    const QuantizedLinear q = random_codes(layout, 40, 7);
    const Exl2Linear p = pack(pool, q);
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
            code |= (p.q_weight(first_word + bit / 32, c) >> (bit % 32) & 1u) << b;
          }
          ASSERT_EQ(code, q.codes(groups[g].first + i, c)) << layout.to_string() << " group " << g << " value " << i;
        }
        ASSERT_EQ(p.q_scale(g, c / 8) >> (4 * (c % 8)) & 15u, q.scale_codes(g, c));
      }
      first_word += groups[g].rows * static_cast<size_t>(groups[g].bits) / 32;
    }
    EXPECT_EQ(p.q_weight.rows(), first_word);
    for (uint32_t r = 0; r < q.in; ++r) ASSERT_EQ(static_cast<uint32_t>(p.q_invperm[q.order[r]]), r);
  }
}

TEST(Exl2, StoredBitsAreTheBytesOfTheTensors) {
  ThreadPool pool(2);
  for (const Layout& layout : layouts()) {
    for (const uint32_t out : {1u, 32u, 33u, 100u}) {
      const Exl2Linear p = pack(pool, random_codes(layout, out, 1));
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

TEST(Exl2, HoldsTheLargestMatrix) {
  ThreadPool pool(2);
  const QuantizedLinear q = random_codes(uniform_layout(65504, 8, 32), 1, 3);
  expect_same(q, unpack(pool, pack(pool, q), "x"));
}

// Other writers mix group sizes between widths, take 16 rows at 2 bits, and end with a short group.
TEST(Exl2, ReadsGroupsOfOtherWriters) {
  ThreadPool pool(2);
  for (const Layout& layout : {Layout{{{5, 128, 128}, {4, 64, 64}, {2, 48, 16}}}, Layout{{{4, 256, 128}, {3, 96, 96}}},
                               Layout{{{6, 64, 32}, {2, 144, 64}}}}) {
    const QuantizedLinear q = random_codes(layout, 32, 4);
    expect_same(q, unpack(pool, pack(pool, q), "x"));
  }
}

TEST(Exl2, ReadsALastGroupThatEndsInsideAWord) {
  ThreadPool pool(2);
  Exl2Linear p = pack(pool, random_codes(uniform_layout(64, 3, 32), 32, 4));
  const QuantizedLinear before = unpack(pool, p, "x");
  // 60 rows of 3 bits take as many words as 64.
  p.in = 60;
  p.q_invperm.resize(60);
  for (int32_t i = 0; i < 60; ++i) p.q_invperm[static_cast<size_t>(i)] = 59 - i;
  const QuantizedLinear q = unpack(pool, p, "x");
  ASSERT_EQ(q.codes.rows(), 60u);
  EXPECT_EQ(std::memcmp(q.codes.data(), before.codes.data(), q.codes.span().size()), 0);
}

void expect_damaged(const Exl2Linear& p, const std::string& what) {
  ThreadPool pool(1);
  try {
    unpack(pool, p, "model.k_proj");
    ADD_FAILURE() << "accepted: " << what;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kModel) << what;
    EXPECT_EQ(std::string(e.what()).rfind("model.k_proj: ", 0), 0u) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
  }
}

Exl2Linear small_linear() {
  ThreadPool pool(1);
  return pack(pool, random_codes({{{4, 64, 32}, {3, 64, 32}, {2, 32, 32}}}, 40, 6));
}

Matrix<uint32_t> words(size_t rows, size_t cols) { return Matrix<uint32_t>(rows, cols, true); }

TEST(Exl2, RefusesTensorsThatContradictEachOther) {
  const auto broken = [](const std::string& what, const auto& change) {
    Exl2Linear p = small_linear();
    change(p);
    expect_damaged(p, what);
  };
  broken("q_weight too narrow", [](Exl2Linear& p) { p.q_weight = words(p.q_weight.rows(), 32); });
  broken("q_weight too wide", [](Exl2Linear& p) { p.q_weight = words(p.q_weight.rows(), 96); });
  broken("q_weight too low", [](Exl2Linear& p) { p.q_weight = words(p.q_weight.rows() - 1, 64); });
  broken("q_weight too high", [](Exl2Linear& p) { p.q_weight = words(p.q_weight.rows() + 1, 64); });
  broken("q_weight much too high", [](Exl2Linear& p) { p.q_weight = words(5000, 64); });
  broken("q_weight empty", [](Exl2Linear& p) { p.q_weight = words(0, 64); });
  broken("q_scale too low", [](Exl2Linear& p) { p.q_scale = words(4, 8); });
  broken("q_scale too high", [](Exl2Linear& p) { p.q_scale = words(6, 8); });
  broken("q_scale too narrow", [](Exl2Linear& p) { p.q_scale = words(5, 7); });
  broken("q_scale empty", [](Exl2Linear& p) { p.q_scale = words(0, 0); });
  broken("q_scale_max too short", [](Exl2Linear& p) { p.q_scale_max.pop_back(); });
  broken("q_scale_max too long", [](Exl2Linear& p) { p.q_scale_max.push_back(Half{1}); });
  broken("q_scale_max infinite", [](Exl2Linear& p) { p.q_scale_max[1] = Half{0x7c00}; });
  broken("q_scale_max not a number", [](Exl2Linear& p) { p.q_scale_max[4] = Half{0x7e00}; });
  broken("q_groups odd", [](Exl2Linear& p) { p.q_groups.pop_back(); });
  broken("q_groups empty", [](Exl2Linear& p) { p.q_groups.clear(); });
  broken("q_groups short", [](Exl2Linear& p) { p.q_groups.resize(8); });
  broken("q_groups long", [](Exl2Linear& p) { p.q_groups.insert(p.q_groups.end(), {2, 30}); });
  for (const int bits : {-4, 0, 1, 7, 9, 32767}) {
    broken("width", [&](Exl2Linear& p) { p.q_groups[2] = static_cast<int16_t>(bits); });
  }
  broken("first word not 0", [](Exl2Linear& p) { p.q_groups[1] = 1; });
  broken("words fall", [](Exl2Linear& p) { std::swap(p.q_groups[3], p.q_groups[5]); });
  broken("empty group", [](Exl2Linear& p) { p.q_groups[3] = 0; });
  broken("word beyond the end", [](Exl2Linear& p) { p.q_groups[9] = 32767; });
  broken("negative word", [](Exl2Linear& p) { p.q_groups[5] = -1; });
  broken("uneven groups of one width", [](Exl2Linear& p) { p.q_groups[3] = 3; });
  broken("q_invperm short", [](Exl2Linear& p) { p.q_invperm.pop_back(); });
  broken("q_invperm empty", [](Exl2Linear& p) { p.q_invperm.clear(); });
  broken("q_invperm twice the same", [](Exl2Linear& p) { p.q_invperm[0] = p.q_invperm[1]; });
  broken("q_invperm out of range", [](Exl2Linear& p) { p.q_invperm[0] = 160; });
  broken("q_invperm negative", [](Exl2Linear& p) { p.q_invperm[0] = -1; });
  broken("in", [](Exl2Linear& p) { p.in = 128; });
  broken("in 0", [](Exl2Linear& p) { p.in = 0; });
  broken("everything of no input", [](Exl2Linear& p) {
    p.in = 0;
    p.q_invperm.clear();
  });
  broken("out 0", [](Exl2Linear& p) { p.out = 0; });
  broken("out too small", [](Exl2Linear& p) { p.out = 32; });
  broken("out too large", [](Exl2Linear& p) { p.out = 65; });
  broken("out that wraps", [](Exl2Linear& p) { p.out = UINT32_MAX; });
  broken("out that wraps to nothing", [](Exl2Linear& p) {
    p.out = UINT32_MAX;
    p.q_weight = words(p.q_weight.rows(), 0);
    p.q_scale = words(p.q_scale.rows(), 0);
  });
  broken("nothing", [](Exl2Linear& p) { p = {}; });
}

// Random damage: either an error of the right kind or a consistent linear, never anything else.
TEST(Exl2, SurvivesRandomDamage) {
  ThreadPool pool(1);
  Rng rng(77);
  size_t accepted = 0, refused = 0;
  for (int round = 0; round < 5000; ++round) {
    Exl2Linear p = small_linear();
    for (uint32_t change = 0; change <= rng.below(3); ++change) {
      const uint32_t value = rng.below(2) == 0 ? rng.next_u32() : rng.below(200);
      switch (rng.below(9)) {
        case 0:
          p.in = value;
          break;
        case 1:
          p.out = value;
          break;
        case 2:
          p.q_weight = words(rng.below(60), rng.below(4) * 32);
          break;
        case 3:
          p.q_scale = words(rng.below(8), rng.below(12));
          break;
        case 4:
          p.q_scale_max.resize(rng.below(8));
          break;
        case 5:
          p.q_groups.resize(rng.below(14));
          break;
        case 6:
          p.q_invperm.resize(rng.below(300));
          break;
        case 7:
          if (!p.q_groups.empty())
            p.q_groups[rng.below(static_cast<uint32_t>(p.q_groups.size()))] = static_cast<int16_t>(value);
          break;
        default:
          if (!p.q_invperm.empty())
            p.q_invperm[rng.below(static_cast<uint32_t>(p.q_invperm.size()))] = static_cast<int32_t>(value);
      }
    }
    try {
      const QuantizedLinear q = unpack(pool, p, "x");
      ASSERT_EQ(q.codes.rows(), p.q_invperm.size());
      ASSERT_EQ(q.layout.rows(), p.q_invperm.size());
      ++accepted;
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ErrorCode::kModel) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(accepted, 0u);
  EXPECT_GT(refused, 2500u);
}

}  // namespace
}  // namespace bw::codec
