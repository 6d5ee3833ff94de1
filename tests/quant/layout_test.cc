#include "quant/layout.h"

#include <gtest/gtest.h>

#include "bitwright/error.h"

namespace bw::quant {
namespace {

TEST(Layout, CutsRunsIntoGroups) {
  const Layout layout{{{6, 160, 64}, {4, 96, 128}, {2, 32, 32}}};
  const std::vector<Group> groups = layout.groups();
  const std::vector<std::vector<uint32_t>> expected{{6, 0, 64}, {6, 64, 64}, {6, 128, 32}, {4, 160, 96}, {2, 256, 32}};
  ASSERT_EQ(groups.size(), expected.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    EXPECT_EQ(static_cast<uint32_t>(groups[g].bits), expected[g][0]);
    EXPECT_EQ(groups[g].first, expected[g][1]);
    EXPECT_EQ(groups[g].rows, expected[g][2]);
  }
  EXPECT_EQ(layout.rows(), 288u);
  EXPECT_EQ(layout.to_string(), "6b160g64 4b96g128 2b32g32");
  EXPECT_NO_THROW(layout.validate(288, "x"));
}

TEST(Layout, EmptyHasNoGroups) {
  EXPECT_TRUE(Layout{}.groups().empty());
  EXPECT_EQ(Layout{}.rows(), 0u);
  EXPECT_EQ(Layout{}.to_string(), "");
  EXPECT_THROW(Layout{}.validate(32, "x"), Error);
}

TEST(Layout, RefusesWhatCannotBeStored) {
  const std::vector<Layout> bad = {
      {{{7, 64, 32}}},                                 // unknown width
      {{{0, 64, 32}}},                                 //
      {{{4, 64, 48}}},                                 // unknown group size
      {{{4, 64, 0}}},                                  //
      {{{4, 32, 32}, {4, 32, 64}}},                    // the same width twice
      {{{3, 32, 32}, {4, 32, 32}}},                    // rising
      {{{4, 48, 32}, {3, 16, 32}}},                    // rows between steps
      {{{4, 64, 32}, {3, 0, 32}}},                     // empty run
      {{{4, 96, 32}}},                                 // more rows than the linear
      {{{4, 32, 32}}},                                 // fewer
      {{{4, 0x80000020u, 32}, {3, 0x80000020u, 32}}},  // a sum that would wrap to 64
  };
  for (const Layout& layout : bad) {
    try {
      layout.validate(64, "model.q_proj");
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kModel);
      EXPECT_EQ(std::string(e.what()).rfind("model.q_proj: ", 0), 0u) << e.what();
    }
  }
}

}  // namespace
}  // namespace bw::quant
