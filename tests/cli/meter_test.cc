// Rates and the time that is left.
#include "cli/meter.h"

#include <gtest/gtest.h>

namespace bw::cli {
namespace {

TEST(Meter, KnowsNothingBeforeTheFirstStepIsDone) {
  Meter m;
  EXPECT_EQ(m.rate(5), 0);
  EXPECT_FALSE(m.eta(5));
  m.update(0, 10, 1);
  EXPECT_EQ(m.rate(5), 0);
  EXPECT_FALSE(m.eta(5));
  m.update(0, 10, 5);  // no news
  EXPECT_FALSE(m.eta(6));
  EXPECT_FALSE(m.finished());
}

TEST(Meter, TheTimeLeftIsTheWorkLeftAtTheRateSoFar) {
  Meter m;
  for (int i = 0; i <= 4; ++i) m.update(i, 10, 2.0 * i);
  EXPECT_DOUBLE_EQ(m.rate(8), 0.5);
  EXPECT_DOUBLE_EQ(*m.eta(8), 12);
  EXPECT_DOUBLE_EQ(*m.eta(9), 11);    // it counts down between two steps
  EXPECT_DOUBLE_EQ(*m.eta(10), 10);   // the step should be done by now
  EXPECT_GT(*m.eta(12), 10.5);        // it takes longer than the others
  EXPECT_GT(*m.eta(14), *m.eta(12));  // and longer
  EXPECT_LT(m.rate(14), 0.5);
}

TEST(Meter, UnequalStepsCountAsTheWorkThatTheyAre) {
  Meter m;  // nine small steps of 1 second, then a large one with as much work as 30 of them
  for (int i = 0; i <= 9; ++i) m.update(i, 39, i);
  EXPECT_DOUBLE_EQ(*m.eta(9), 30);
}

TEST(Meter, WhatAnEarlierRunHasDoneTakesNoTime) {
  Meter m;
  m.update(20, 30, 100);
  EXPECT_FALSE(m.eta(101));
  m.update(21, 30, 103);
  EXPECT_DOUBLE_EQ(*m.eta(103), 27);
  EXPECT_DOUBLE_EQ(m.elapsed(103), 3);
}

TEST(Meter, ASlowBeginningIsForgotten) {
  Meter m;
  m.update(0, 100, 0);
  m.update(1, 100, 50);
  for (int i = 2; i <= 61; ++i) m.update(i, 100, 50 + i);
  EXPECT_NEAR(*m.eta(111), 39, 1e-9);  // one second a step by now
}

TEST(Meter, MillionsOfStepsNeedNoMemoryAndStayRight) {
  Meter m;
  constexpr int kSteps = 1000000;
  for (int i = 0; i <= kSteps / 2; ++i) m.update(i, kSteps, i * 1e-3);
  EXPECT_NEAR(m.rate(500), 1000, 1);
  EXPECT_NEAR(*m.eta(500), 500, 1);
}

TEST(Meter, WhatIsDoneIsDone) {
  Meter m;
  m.update(0, 3, 0);
  m.update(3, 3, 1);
  EXPECT_TRUE(m.finished());
  EXPECT_EQ(*m.eta(7), 0);
  Meter at_once;  // one event that is first and last
  at_once.update(1, 1, 5);
  EXPECT_TRUE(at_once.finished());
  EXPECT_EQ(at_once.rate(5), 0);
  EXPECT_EQ(*at_once.eta(5), 0);
}

TEST(Meter, TwoStepsAtTheSameMomentAreNoInfiniteRate) {
  Meter m;
  m.update(0, 3, 1);
  m.update(1, 3, 1);
  EXPECT_EQ(m.rate(1), 0);
  EXPECT_FALSE(m.eta(1));
}

}  // namespace
}  // namespace bw::cli
