// Jobs that find no memory at any moment: they end with one line, lose nothing, and go on when there is some.
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <new>

#include <gtest/gtest.h>

#include "bitwright/bitwright.h"
#include "support/files.h"
#include "support/temp_dir.h"

// The sanitizers have allocators of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace bw {
namespace {

// Of the allocations that count, those of this size on: the n-th fails, or that and all after it. Negative: none.
std::atomic<int64_t> left = -1;
std::atomic<size_t> smallest = 0;
std::atomic<bool> for_good = false;

bool fails(size_t bytes) {
  if (bytes < smallest || left < 0) return false;
  if (for_good) return left == 0 || --left <= 0;
  return left-- == 0;
}

}  // namespace
}  // namespace bw

void* operator new(size_t bytes) {
  void* const p = bw::fails(bytes) ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (!p) throw std::bad_alloc();
  return p;
}
// Where it inlines the one and not the other, the compiler does not see that both are ours.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

extern "C" void* aligned_alloc(size_t alignment, size_t bytes) {
  void* p = nullptr;
  return bw::fails(bytes) || posix_memalign(&p, alignment, bytes) != 0 ? nullptr : p;
}

namespace bw {
namespace {

namespace fs = std::filesystem;

class OutOfMemory : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(dir_ / "text.txt");
    for (int i = 0; i < 60; ++i) text << "Bed " << i << " of the garden is dug over before the frost.\n";
  }
  void TearDown() override { left = -1; }

  QuantizeOptions options(size_t threads) const {
    QuantizeOptions o;
    o.model = fs::path(BW_FIXTURES) / "models" / "llama";
    o.output = dir_ / "out";
    o.bpw = {5};
    o.calibration = {{dir_ / "text.txt"}, 2, 32, 1};
    o.effort = Effort::kFast;
    o.work.checkpoint_seconds = 0;
    o.engine.threads = threads;
    return o;
  }

  // With memory running out at the n-th allocation of so many bytes or more. False: there were not so many.
  bool runs_out_at(int64_t n, size_t bytes, bool all_after, size_t threads) {
    const QuantizeOptions o = options(threads);
    smallest = bytes;
    for_good = all_after;
    left = n;
    try {
      quantize(o);
    } catch (const Error& e) {
      const int64_t seen = left.exchange(-1);
      EXPECT_LE(seen, 0) << e.what();
      EXPECT_EQ(e.code(), ErrorCode::kIo) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("memory"), std::string::npos) << e.what();
      EXPECT_FALSE(fs::exists(dir_ / "out")) << n;
      return true;
    }
    return left.exchange(-1) <= 0;  // what can be done without was
  }

  // Steps through the moments; each time, the same call then comes to the same output.
  void expect_clean_ends(size_t bytes, bool all_after, size_t threads) {
    int moments = 0;
    for (int64_t n = 0; runs_out_at(n, bytes, all_after, threads); n += 1 + n / 3) {
      ++moments;
      if (!fs::exists(dir_ / "out")) quantize(options(threads));
      EXPECT_EQ(test::contents(dir_ / "out"), whole_) << n;
      EXPECT_FALSE(fs::exists(dir_ / "out.work")) << n;
      fs::remove_all(dir_ / "out");
    }
    EXPECT_GT(moments, 10);
    fs::remove_all(dir_ / "out");
  }

  void make_whole() {
    quantize(options(1));
    whole_ = test::contents(dir_ / "out");
    fs::remove_all(dir_ / "out");
  }

  test::TempDir dir_;
  std::map<std::string, std::string> whole_;
};

TEST_F(OutOfMemory, OneAllocationThatFailsEndsTheJobCleanly) {
  make_whole();
  // Not fewer: where libstdc++ finds no room for what a directory_iterator needs, it ends the program.
  for (const size_t bytes : {size_t{4096}, size_t{32768}}) expect_clean_ends(bytes, false, 2);
}

TEST_F(OutOfMemory, NoRoomForAnythingLargeFromSomeMomentOnEndsTheJobCleanly) {
  make_whole();
  for (const size_t bytes : {size_t{4096}, size_t{32768}}) expect_clean_ends(bytes, true, 1);
}

}  // namespace
}  // namespace bw

#endif
