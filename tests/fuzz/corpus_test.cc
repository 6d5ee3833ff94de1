// Every fuzz target on its committed corpus, so that both stay alive between runs of the fuzzer.
#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "fuzz/target.h"
#include "io/file_write.h"

namespace bw::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostFileBytes = 2048, kMostCorpusBytes = 100 * 1024;

const fs::path kCorpus = fs::path(BW_SOURCE_DIR) / "tests/fuzz/corpus";

std::vector<std::string> names_of_targets() {
  std::vector<std::string> names;
  for (const auto& [name, function] : targets()) names.push_back(name);
  return names;
}

class FuzzTarget : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Corpus, FuzzTarget, testing::ValuesIn(names_of_targets()),
                         [](const auto& target) { return target.param; });

TEST_P(FuzzTarget, HasNoFindingInItsCorpus) {
  size_t n = 0;
  for (const auto& file : fs::directory_iterator(kCorpus / GetParam())) {
    SCOPED_TRACE(file.path().filename().string());
    EXPECT_NO_THROW(run(targets().at(GetParam()), io::read_file(file.path())));
    ++n;
  }
  EXPECT_GE(n, 3u);
}

TEST(FuzzCorpus, IsSmallAndBelongsToTargets) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kCorpus)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory()) {
      EXPECT_TRUE(targets().contains(name)) << name << " is the corpus of no target";
    } else {
      EXPECT_LE(entry.file_size(), kMostFileBytes) << name;
      bytes += entry.file_size();
    }
  }
  EXPECT_LE(bytes, kMostCorpusBytes);
}

// The frame itself must tell findings from refusals.
TEST(FuzzRun, TakesRefusalsAndLetsFindingsThrough) {
  EXPECT_NO_THROW(run([](std::string_view) { throw Error(ErrorCode::kModel, "bad", "mend it"); }, ""));
  EXPECT_ANY_THROW(run([](std::string_view) { throw Error(ErrorCode::kModel, "two\nlines"); }, ""));
  EXPECT_ANY_THROW(run([](std::string_view) { throw Error(ErrorCode::kModel, "\x1b[2J"); }, ""));
  EXPECT_ANY_THROW(run([](std::string_view) { throw Error(ErrorCode::kInternal, "bug"); }, ""));
  EXPECT_ANY_THROW(run([](std::string_view) { throw std::out_of_range("at"); }, ""));
  EXPECT_ANY_THROW(run([](std::string_view) { require(false, "broken"); }, ""));
}

}  // namespace
}  // namespace bw::fuzz
