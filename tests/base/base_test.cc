#include <cmath>
#include <cstdlib>
#include <set>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/half.h"
#include "base/hash.h"
#include "base/matrix.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "bitwright/error.h"
#include "bitwright/units.h"
#include "support/errors.h"

namespace bw {
namespace {

TEST(Half, EveryPatternSurvivesARoundTrip) {
  for (uint32_t u = 0; u < 65536; ++u) {
    const Half h{static_cast<uint16_t>(u)};
    const float f = to_float(h);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(to_float(to_half(f))));
    } else {
      EXPECT_EQ(static_cast<uint16_t>(to_half(f)), u);
    }
  }
}

TEST(Half, RoundsToNearestEvenAsTheCompilerDoes) {
  Rng rng(1);
  for (int i = 0; i < 200000; ++i) {
    const float f = std::bit_cast<float>(rng.next_u32());
    if (std::isnan(f)) continue;
    EXPECT_EQ(std::bit_cast<uint16_t>(static_cast<_Float16>(f)), static_cast<uint16_t>(to_half(f))) << f;
  }
  EXPECT_TRUE(std::isinf(round_to_half(65520.0f)));
  EXPECT_EQ(round_to_half(65519.0f), 65504.0f);
}

TEST(BFloat16, RoundsTiesToEven) {
  EXPECT_EQ(static_cast<uint16_t>(to_bfloat16(std::bit_cast<float>(0x3f808000u))), 0x3f80);
  EXPECT_EQ(static_cast<uint16_t>(to_bfloat16(std::bit_cast<float>(0x3f818000u))), 0x3f82);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(NAN))));
}

TEST(Philox, MatchesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(ThreadPool, RunsEveryTaskOnceAndRethrows) {
  for (size_t threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    std::vector<int> seen(1000);
    pool.parallel_for(seen.size(), [&](size_t i, size_t worker) {
      ASSERT_LT(worker, threads);
      ++seen[i];
    });
    for (int s : seen) EXPECT_EQ(s, 1);
    EXPECT_THROW(pool.parallel_for(100,
                                   [](size_t i, size_t) {
                                     if (i == 50) throw Error(ErrorCode::kInternal, "fifty");
                                   }),
                 Error);
    size_t inner = 0;
    pool.parallel_for(1, [&](size_t, size_t) { pool.parallel_for(7, [&](size_t, size_t) { ++inner; }); });
    EXPECT_EQ(inner, 7u);
  }
}

TEST(ThreadPool, RefusesMoreThreadsThanArePossible) {
  test::expect_error([] { ThreadPool pool(1025); }, ErrorCode::kUsage, {"--threads 1025", "1024"});
  test::expect_error([] { ThreadPool pool(SIZE_MAX); }, ErrorCode::kUsage, {"--threads", "1024"});
}

// Exits with 0 if a pool for whose stacks there is no room is refused with an Error.
[[noreturn]] void start_threads_without_room() {
  const rlimit room{size_t{256} << 20, size_t{256} << 20};
  setrlimit(RLIMIT_AS, &room);
  try {
    ThreadPool pool(1000);
  } catch (const Error& e) {
    const std::string text = e.what();
    std::_Exit(e.code() == ErrorCode::kUsage && text.find("--threads 1000: the system gives no more") == 0 ? 0 : 1);
  }
  std::_Exit(2);
}

TEST(ThreadPoolDeathTest, ThreadsThatTheSystemRefusesAreAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow memory leaves no room below a limit";
#endif
  EXPECT_EXIT(start_threads_without_room(), testing::ExitedWithCode(0), "");
}

TEST(Units, BytesAreReadAndWritten) {
  EXPECT_EQ(parse_bytes("3.2GB", "--size"), 3200000000u);
  EXPECT_EQ(parse_bytes("2 GiB", "--size"), uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("512", "--size"), 512u);
  EXPECT_EQ(format_bytes(132800000), "133 MB");
  EXPECT_EQ(format_bytes(3200000000), "3.2 GB");
  for (const char* bad : {"", "x", "3.2XB", "-1", "nan", "1e99GB", "3GBB", "3 i"}) {
    EXPECT_THROW(parse_bytes(bad, "--size"), Error) << bad;
  }
}

TEST(Hash, DependsOnTheDataAlone) {
  Hasher a;
  const std::string text = "some bytes to hash";
  a.update(std::as_bytes(std::span(text.data(), 4)));
  a.update(std::as_bytes(std::span(text.data() + 4, text.size() - 4)));
  Hasher b;
  b.update(std::as_bytes(std::span(text.data(), text.size())));
  EXPECT_EQ(a.hex(), b.hex());
  EXPECT_EQ(Hasher().hex(), "99aa06d3014798d86001c324468d497f");  // XXH3-128 of nothing, from its specification
}

}  // namespace
}  // namespace bw
