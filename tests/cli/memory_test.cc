// The program where the system gives it little memory.
#include <gtest/gtest.h>

#include "cli/program.h"

// The sanitizers take more address space than any of these limits.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::quoted;
using test::shell;

class LittleMemory : public test::Program {
 protected:
  // Under a limit of address space.
  Outcome run_within(size_t megabytes, const std::string& arguments) {
    return shell("ulimit -v " + std::to_string(megabytes * 1024) + "; " + quoted(BW_PROGRAM) + " " + arguments);
  }
};

TEST_F(LittleMemory, AJobIsDoneOrRefusedWithALine) {
  constexpr int kNotLoaded = 127;  // the program's libraries had no room
  const std::string job = "quantize " + quoted(model_) + " -o " + quoted(out_) + " --bpw 5 --calib " + quoted(text_) +
                          " --calib-rows 60 --calib-length 32 --threads 2 --effort fast";
  int done = 0, refused = 0, foreseen = 0;
  for (size_t megabytes = 20; megabytes < 1000; megabytes += 1 + megabytes / 5) {
    const Outcome o = run_within(megabytes, job);
    if (o.status == kNotLoaded) continue;
    if (o.status == 0) {
      ++done;
      EXPECT_TRUE(o.last_line().starts_with("done: ")) << megabytes << ": " << o.out;
    } else {
      ++refused;
      EXPECT_TRUE(o.status == 2 || o.status == 5) << megabytes << ": " << o.status << " " << o.out;
      EXPECT_TRUE(o.last_line().starts_with("error: ")) << megabytes << ": " << o.out;
      foreseen += o.last_line().starts_with("error: the limit of address space: about ") ? 1 : 0;
      EXPECT_FALSE(fs::exists(out_)) << megabytes;
    }
    fs::remove_all(out_);
    if (done == 2) break;  // with more it is done, too
  }
  EXPECT_EQ(done, 2);
  EXPECT_GT(refused, foreseen);
  EXPECT_GT(foreseen, 0);  // before any work, with what is needed
}

}  // namespace
}  // namespace bw

#endif
