// Stored linears that contradict themselves: they may come from a damaged file.
#include <functional>

#include <gtest/gtest.h>

#include "codec/packed.h"
#include "support/errors.h"

namespace bw::codec {
namespace {

using backend::HostTensor;
using quant::random_codes;

class DamagedExl2On : public quant::OnDevice {
 protected:
  // 16 words and 160 rows in 5 groups, 40 outputs in 64 columns.
  const Exl2Linear small_ = pack_on(*device_, random_codes({{{4, 64, 32}, {3, 64, 32}, {2, 32, 32}}}, 40, 6));

  HostTensor words(size_t rows, size_t cols) const {
    return resized(*device_, device_->stage(0, 0, backend::DType::kI32), rows, cols);
  }
  HostTensor resize(const HostTensor& t, size_t rows) const { return resized(*device_, t, rows, t.cols); }

  // Unpacking small_ after `change` must fail with these words.
  void broken(std::string_view words_in_error, const std::function<void(Exl2Linear&)>& change) const {
    Exl2Linear p = copy_of(*device_, small_);
    change(p);
    test::expect_error([&] { unpack(*device_, std::move(p), "model.k_proj"); }, ErrorCode::kModel,
                       {"model.k_proj: damaged EXL2 tensors: ", words_in_error});
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, DamagedExl2On, testing::ValuesIn(test::kDevices));

TEST_P(DamagedExl2On, RefusesTensorsOfOtherShapes) {
  broken("q_weight has 32 columns for 40 outputs", [&](Exl2Linear& p) { p.q_weight = words(16, 32); });
  broken("q_weight has 96 columns for 40 outputs", [&](Exl2Linear& p) { p.q_weight = words(16, 96); });
  broken("groups hold 144 rows, q_invperm 160", [&](Exl2Linear& p) { p.q_weight = words(15, 64); });
  broken("groups hold more than 160 rows", [&](Exl2Linear& p) { p.q_weight = words(17, 64); });
  broken("groups hold more than 160 rows", [&](Exl2Linear& p) { p.q_weight = words(18, 64); });
  broken("groups hold more than 160 rows", [&](Exl2Linear& p) { p.q_weight = words(5000, 64); });
  broken("group 4 covers words 14 to 0", [&](Exl2Linear& p) { p.q_weight = words(0, 64); });
  broken("5 groups, but q_scale is 4 x 8", [&](Exl2Linear& p) { p.q_scale = words(4, 8); });
  broken("5 groups, but q_scale is 6 x 8", [&](Exl2Linear& p) { p.q_scale = words(6, 8); });
  broken("5 groups, but q_scale is 5 x 7", [&](Exl2Linear& p) { p.q_scale = words(5, 7); });
  broken("5 groups, but q_scale is 0 x 0", [&](Exl2Linear& p) { p.q_scale = words(0, 0); });
  broken("q_scale_max has 4", [&](Exl2Linear& p) { p.q_scale_max = resize(p.q_scale_max, 4); });
  broken("q_scale_max has 6", [&](Exl2Linear& p) { p.q_scale_max = resize(p.q_scale_max, 6); });
  broken("64 columns for 0 outputs", [](Exl2Linear& p) { p.out = 0; });
  broken("64 columns for 32 outputs", [](Exl2Linear& p) { p.out = 32; });
  broken("64 columns for 65 outputs", [](Exl2Linear& p) { p.out = 65; });
  broken("64 columns for 4294967295 outputs", [](Exl2Linear& p) { p.out = UINT32_MAX; });
  broken("0 columns for 4294967295 outputs", [&](Exl2Linear& p) {
    p.out = UINT32_MAX;
    p.q_weight = words(p.q_weight.rows, 0);
    p.q_scale = words(p.q_scale.rows, 0);
  });
  broken("0 columns for 0 outputs", [](Exl2Linear& p) { p = {}; });
}

TEST_P(DamagedExl2On, RefusesScalesThatAreNotFinite) {
  broken("q_scale_max is not finite", [](Exl2Linear& p) { p.q_scale_max.as<Half>()[1] = Half{0x7c00}; });
  broken("q_scale_max is not finite", [](Exl2Linear& p) { p.q_scale_max.as<Half>()[4] = Half{0x7e00}; });
}

TEST_P(DamagedExl2On, RefusesGroupsThatCannotBe) {
  broken("q_groups has an odd or zero length", [](Exl2Linear& p) { p.q_groups.pop_back(); });
  broken("q_groups has an odd or zero length", [](Exl2Linear& p) { p.q_groups.clear(); });
  broken("group 3 ends inside a row of 3 bits", [](Exl2Linear& p) { p.q_groups.resize(8); });
  broken("groups hold 128 rows, q_invperm 160", [&](Exl2Linear& p) {
    p.q_groups.resize(8);
    p.q_weight = words(14, 64);
  });
  broken("more than 160 rows", [](Exl2Linear& p) { p.q_groups.insert(p.q_groups.end(), {2, 30}); });
  for (const int bits : {-4, 0, 1, 7, 9, 32767}) {
    broken("group 1 has " + std::to_string(bits) + " bits",
           [&](Exl2Linear& p) { p.q_groups[2] = static_cast<int16_t>(bits); });
  }
  broken("group 0 covers words 1 to 4", [](Exl2Linear& p) { p.q_groups[1] = 1; });
  broken("group 1 covers words 8 to 4", [](Exl2Linear& p) { std::swap(p.q_groups[3], p.q_groups[5]); });
  broken("group 0 covers words 0 to 0", [](Exl2Linear& p) { p.q_groups[3] = 0; });
  broken("group 3 ends inside a row of 3 bits", [](Exl2Linear& p) { p.q_groups[9] = 32767; });
  broken("more than 160 rows", [](Exl2Linear& p) { p.q_groups[9] = 32765; });
  broken("group 1 covers words 4 to -1", [](Exl2Linear& p) { p.q_groups[5] = -1; });
  broken("groups of one width have uneven sizes", [](Exl2Linear& p) { p.q_groups[3] = 3; });
  broken("groups of one width have uneven sizes", [&](Exl2Linear& p) {
    p = pack_on(*device_, random_codes({{{4, 128, 64}}}, 40, 6));
    p.q_groups[3] = 4;
  });
}

TEST_P(DamagedExl2On, RefusesWhatIsNoPermutationOfTheInputs) {
  broken("q_invperm has another length", [](Exl2Linear& p) { p.q_invperm.pop_back(); });
  broken("q_invperm has another length", [](Exl2Linear& p) { p.q_invperm.clear(); });
  broken("q_invperm is no permutation", [](Exl2Linear& p) { p.q_invperm[0] = p.q_invperm[1]; });
  broken("q_invperm is no permutation", [](Exl2Linear& p) { p.q_invperm[0] = 160; });
  broken("q_invperm is no permutation", [](Exl2Linear& p) { p.q_invperm[0] = -1; });
  broken("q_invperm has another length", [](Exl2Linear& p) { p.in = 128; });
  broken("q_invperm has another length", [](Exl2Linear& p) { p.in = 0; });
  broken("groups hold more than 0 rows", [](Exl2Linear& p) {
    p.in = 0;
    p.q_invperm.clear();
  });
}

// The rows of a width are a multiple of 32: 60 rows of 3 bits take as many words as 64.
TEST_P(DamagedExl2On, RefusesRowsThatEndInsideAWord) {
  broken("groups hold more than 156 rows", [](Exl2Linear& p) {
    p.in = 156;
    p.q_invperm.resize(156);
  });
}

class Damage {
 public:
  Damage(backend::Backend& device, Rng& rng) : device_(device), rng_(rng) {}

  void spoil(Exl2Linear& p) {
    const uint32_t value = rng_.below(2) == 0 ? rng_.next_u32() : rng_.below(200);
    switch (rng_.below(9)) {
      case 0:
        p.in = value;
        break;
      case 1:
        p.out = value;
        break;
      case 2:
        p.q_weight = resized(device_, p.q_weight, rng_.below(60), rng_.below(4) * 32);
        break;
      case 3:
        p.q_scale = resized(device_, p.q_scale, rng_.below(8), rng_.below(12));
        break;
      case 4:
        p.q_scale_max = resized(device_, p.q_scale_max, rng_.below(8), 1);
        break;
      case 5:
        p.q_groups.resize(rng_.below(14));
        break;
      case 6:
        p.q_invperm.resize(rng_.below(300));
        break;
      case 7:
        set_one(p.q_groups, value);
        break;
      default:
        set_one(p.q_invperm, value);
    }
  }

 private:
  template <typename T>
  void set_one(std::vector<T>& v, uint32_t value) {
    if (!v.empty()) v[rng_.below(static_cast<uint32_t>(v.size()))] = static_cast<T>(value);
  }

  backend::Backend& device_;
  Rng& rng_;
};

// Random damage: either an error of the right kind or a consistent linear, never anything else.
TEST_P(DamagedExl2On, SurvivesRandomDamage) {
  Rng rng(77);
  Damage damage(*device_, rng);
  size_t accepted = 0, refused = 0;
  for (int round = 0; round < 5000; ++round) {
    Exl2Linear p = copy_of(*device_, small_);
    for (uint32_t change = 0; change <= rng.below(3); ++change) damage.spoil(p);
    const size_t inputs = p.q_invperm.size();
    try {
      const quant::QuantizedLinear q = unpack(*device_, std::move(p), "x");
      ASSERT_EQ(q.codes.rows, inputs);
      ASSERT_EQ(q.layout.rows(), inputs);
      ++accepted;
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ErrorCode::kModel) << e.what();
      ++refused;
    }
  }
  device_->wait_all("test");
  EXPECT_GT(accepted, 0u);
  EXPECT_GT(refused, 2500u);
}

}  // namespace
}  // namespace bw::codec
