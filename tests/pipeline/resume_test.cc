// Jobs that are ended at any moment, and what the same call makes of what they have left.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "bitwright/bitwright.h"
#include "io/file_write.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/stopped.h"
#include "support/temp_dir.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::contents;
using test::read_bytes;
using test::stopped_at;

const fs::path kModel = fs::path(BW_FIXTURES) / "models" / "llama";

void write_text(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

class Resume : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; text.size() < 3000; ++i) text += "Line " + std::to_string(i * i) + " of the log says so. ";
    write_text(text_, text);
    quantize(options("whole"));
    whole_ = contents(dir_ / "whole");
  }

  QuantizeOptions options(const std::string& output) {
    QuantizeOptions o;
    o.model = kModel;
    o.output = dir_ / output;
    o.bpw = {4.5};
    o.calibration = {{text_}, 4, 32, 1};
    o.work.checkpoint_seconds = 0;
    o.engine.threads = 2;
    o.engine.progress = [&](const ProgressEvent& e) {
      if (e.kind == ProgressEvent::Kind::kWarning) warnings_.push_back(e.text);
      stages_.insert(std::string(e.stage));
    };
    return o;
  }

  test::TempDir dir_;
  fs::path text_ = dir_ / "text.txt";
  std::map<std::string, std::string> whole_;
  std::vector<std::string> warnings_;
  std::set<std::string> stages_;
};

TEST_F(Resume, AJobThatIsStoppedAgainAndAgainEndsWithTheSameBytes) {
  int runs = 0;
  while (stopped_at(options("out"), 4)) ASSERT_LT(++runs, 60);
  EXPECT_GT(runs, 3);
  EXPECT_EQ(contents(dir_ / "out"), whole_);
  EXPECT_FALSE(fs::exists(dir_ / "out.work"));
  EXPECT_FALSE(fs::exists(dir_ / "out.partial"));
}

TEST_F(Resume, StoppedAtAnyMomentItGoesOnToTheSameBytes) {
  for (int n = 1;; ++n) {
    const bool stopped = stopped_at(options("out"), n).has_value();
    if (stopped) quantize(options("out"));
    EXPECT_EQ(contents(dir_ / "out"), whole_) << n;
    EXPECT_FALSE(fs::exists(dir_ / "out.work"));
    fs::remove_all(dir_ / "out");
    if (!stopped) break;
  }
}

TEST_F(Resume, WhatIsFinishedIsNotDoneAgain) {
  for (int n = 1;; ++n) {
    stages_.clear();
    ASSERT_TRUE(stopped_at(options("out"), n)) << "never came to quantize";
    if (stages_.contains("quantize")) break;
  }
  stages_.clear();
  quantize(options("out"));
  EXPECT_FALSE(stages_.contains("gradients"));
  EXPECT_EQ(contents(dir_ / "out"), whole_);
}

TEST_F(Resume, ADamagedFileOfTheWorkFolderIsMadeAgain) {
  std::string (*const damages[])(std::string) = {[](std::string text) { return text.substr(0, text.size() / 2); },
                                                 [](std::string) { return std::string(); },
                                                 [](std::string text) {
                                                   text[text.size() / 2] ^= 1;
                                                   return text;
                                                 }};
  for (const int n : {3, 6, 8}) {
    if (!stopped_at(options("out"), n)) break;
    const auto work = fs::exists(dir_ / "out.work") ? contents(dir_ / "out.work") : whole_;
    fs::copy(dir_ / "out.work", dir_ / "saved", fs::copy_options::recursive);
    size_t turn = static_cast<size_t>(n);
    for (const auto& [name, bytes] : work) {
      if (bytes.empty()) continue;  // the marker
      write_text(dir_ / "out.work" / name, damages[turn++ % std::size(damages)](bytes));
      quantize(options("out"));
      EXPECT_EQ(contents(dir_ / "out"), whole_) << name;
      EXPECT_FALSE(fs::exists(dir_ / "out.work")) << name;
      fs::remove_all(dir_ / "out");
      fs::copy(dir_ / "saved", dir_ / "out.work", fs::copy_options::recursive);
    }
    fs::remove_all(dir_ / "saved");
    fs::remove_all(dir_ / "out.work");
  }
  const auto damaged = [](const std::string& text) { return text.find("is damaged") != std::string::npos; };
  EXPECT_GT(std::count_if(warnings_.begin(), warnings_.end(), damaged), 3);
}

int writes_left = 0;

TEST_F(Resume, ADiskThatIsFullAtAnyWriteCostsNothingButTime) {
  int failures = 0;
  for (int n = 0;; n += 1 + n / 24) {
    writes_left = n;
    io::set_write_fault(+[] { return writes_left-- <= 0; });
    bool failed = false;
    try {
      quantize(options("out"));
    } catch (const Error& e) {
      failed = true;
      EXPECT_EQ(e.code(), ErrorCode::kIo) << e.what();
      EXPECT_NE(std::string(e.what()).find("No space left on device"), std::string::npos) << e.what();
    }
    io::set_write_fault(nullptr);
    if (failed) {
      ++failures;
      EXPECT_FALSE(fs::exists(dir_ / "out")) << n;
      EXPECT_FALSE(fs::exists(dir_ / "out.partial")) << n;
      quantize(options("out"));
    }
    EXPECT_EQ(contents(dir_ / "out"), whole_) << n;
    EXPECT_FALSE(fs::exists(dir_ / "out.work")) << n;
    fs::remove_all(dir_ / "out");
    if (!failed) break;
  }
  EXPECT_GT(failures, 20);
}

TEST_F(Resume, AnotherTextOrModelIsRefusedAndNamed) {
  ASSERT_TRUE(stopped_at(options("out"), 6));
  ASSERT_TRUE(fs::exists(dir_ / "out.work"));
  const auto work = contents(dir_ / "out.work");
  QuantizeOptions other = options("out");
  other.calibration.files = {dir_ / "other.txt"};
  write_text(dir_ / "other.txt", read_bytes(text_) + "More.");
  test::expect_error([&] { quantize(other); }, ErrorCode::kUsage, {"out.work", "another text", "--restart"});
  fs::copy(kModel, dir_ / "model", fs::copy_options::recursive);
  std::string config = read_bytes(dir_ / "model" / "config.json");
  config.insert(config.find('{') + 1, "\"note\": 1, ");
  write_text(dir_ / "model" / "config.json", config);
  QuantizeOptions changed = options("out");
  changed.model = dir_ / "model";
  test::expect_error([&] { quantize(changed); }, ErrorCode::kUsage, {"out.work", "another model", "--restart"});
  EXPECT_EQ(contents(dir_ / "out.work"), work);
  other.work.restart = true;
  quantize(other);
  EXPECT_FALSE(fs::exists(dir_ / "out.work"));
}

TEST_F(Resume, ChangedOptionsRedoOnlyWhatDependsOnThem) {
  for (int n = 1;; ++n) {
    stages_.clear();
    ASSERT_TRUE(stopped_at(options("out"), n));
    if (stages_.contains("quantize")) break;
  }
  stages_.clear();
  QuantizeOptions more = options("out");
  more.bpw = {6.0};
  quantize(more);
  EXPECT_FALSE(stages_.contains("gradients"));
  more.output = dir_ / "fresh";
  quantize(more);
  EXPECT_EQ(contents(dir_ / "out"), contents(dir_ / "fresh"));
}

TEST_F(Resume, OtherWeightsOfTheSameTextsAreOtherRows) {
  const fs::path other = dir_ / "other.txt";
  std::string text;
  for (int i = 0; text.size() < 3000; ++i) text += "Numbers " + std::to_string(7 * i) + " and no more; ";
  write_text(other, text);
  const auto weighed = [&](const std::string& output, std::vector<double> weights) {
    QuantizeOptions o = options(output);
    o.calibration.files = {text_, other};
    o.calibration.weights = std::move(weights);
    return o;
  };
  quantize(weighed("fresh", {1, 3}));
  const auto fresh = contents(dir_ / "fresh");
  int resumed = 0;
  for (int n = 1; stopped_at(weighed("out", {3, 1}), n); ++n) {
    resumed += fs::exists(dir_ / "out.work");
    quantize(weighed("out", {1, 3}));
    EXPECT_EQ(contents(dir_ / "out"), fresh) << n;
    fs::remove_all(dir_ / "out");
  }
  EXPECT_GT(resumed, 3);
  // The one output is finished already, and what is asked for is another.
  QuantizeOptions two = weighed("out", {3, 1});
  two.bpw = {4.5, 6.0};
  fs::remove_all(dir_ / "out");
  two.engine.interrupted = [&] { return fs::exists(dir_ / "out-4.5bpw"); };
  test::expect_error([&] { quantize(two); }, ErrorCode::kInterrupted, {"is kept in"});
  two.engine.interrupted = nullptr;
  two.calibration.weights = {1, 3};
  test::expect_error([&] { quantize(two); }, ErrorCode::kUsage, {"out-4.5bpw: it exists already"});
}

TEST_F(Resume, AMeasurementGoesOnToo) {
  MeasureOptions m{kModel, dir_ / "whole.json", {{text_}, 4, 32, 1}, {{}, false, 0}, {}};
  measure(m);
  m.output = dir_ / "m.json";
  int runs = 0, asked = 0;
  m.engine.interrupted = [&] { return ++asked >= 3; };
  for (bool done = false; !done; asked = 0) {
    ASSERT_LT(++runs, 60);
    try {
      measure(m);
      done = true;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInterrupted);
    }
  }
  EXPECT_GT(runs, 2);
  EXPECT_EQ(read_bytes(dir_ / "m.json"), read_bytes(dir_ / "whole.json"));
  EXPECT_FALSE(fs::exists(dir_ / "m.json.work"));
}

// What a run that is killed while it renames leaves: a complete output with our marker, and what it replaces.
TEST_F(Resume, AnOutputThatHasItsNameButStillTheMarkerIsComplete) {
  const fs::path out = dir_ / "out", marker = out / ".bitwright-partial", replaced = dir_ / "out.replaced";
  const auto leave = [&] {
    fs::remove_all(out);
    fs::remove_all(replaced);
    fs::copy(dir_ / "whole", out);
    fs::copy(dir_ / "whole", replaced);
    write_text(marker, "");
  };
  QuantizeOptions other = options("out");
  other.calibration.seed = 2;
  leave();
  test::expect_error([&] { quantize(other); }, ErrorCode::kUsage, {"out: it exists already", "--overwrite"});
  EXPECT_EQ(contents(out).count("config.json"), 1u);
  for (const bool restart : {false, true}) {
    leave();
    other.overwrite = true;
    other.work.restart = restart;
    quantize(other);
    EXPECT_FALSE(fs::exists(marker));
    EXPECT_FALSE(fs::exists(replaced));
    EXPECT_EQ(contents(out).size(), whole_.size());
  }
}

TEST_F(Resume, AnOutputThatWasMovedAwayWhenTheRunWasKilledGetsItsNameBack) {
  fs::copy(dir_ / "whole", dir_ / "out.replaced");
  fs::create_directory(dir_ / "out.partial");
  write_text(dir_ / "out.partial" / ".bitwright-partial", "");
  test::expect_error([&] { quantize(options("out")); }, ErrorCode::kUsage, {"out: it exists already"});
  EXPECT_FALSE(fs::exists(dir_ / "out.replaced"));
  EXPECT_EQ(contents(dir_ / "out"), whole_);
}

TEST_F(Resume, ARestartThatIsRefusedLosesNothing) {
  ASSERT_TRUE(stopped_at(options("out"), 6));
  const auto work = contents(dir_ / "out.work");
  fs::create_directory(dir_ / "out");
  write_text(dir_ / "out" / "thesis", "text");
  QuantizeOptions again = options("out");
  again.work.restart = true;
  test::expect_error([&] { quantize(again); }, ErrorCode::kUsage, {"not written by Bitwright"});
  EXPECT_EQ(contents(dir_ / "out.work"), work);
}

TEST_F(Resume, KilledWhileTheFinishedJobClearsItsFolderItIsStillFinished) {
  QuantizeOptions first = options("out");
  first.engine.progress = [&](const ProgressEvent& e) {
    if (e.stage == "compile" && e.done >= e.total)
      fs::copy(dir_ / "out.work", dir_ / "saved", fs::copy_options::recursive);
  };
  const uint64_t written = quantize(first).at(0).written_bytes;
  // From all that there was down to the record of what is finished: the order in which the folder is cleared.
  for (const char* gone : {"", "4.5bpw", "measured.piece", "job.piece.seal", "job.piece"}) {
    if (*gone != '\0') fs::remove_all(dir_ / "saved" / gone);
    fs::copy(dir_ / "saved", dir_ / "out.work", fs::copy_options::recursive);
    stages_.clear();
    EXPECT_EQ(quantize(options("out")).at(0).written_bytes, written);
    EXPECT_FALSE(stages_.contains("quantize")) << gone;
    EXPECT_EQ(contents(dir_ / "out"), whole_);
    EXPECT_FALSE(fs::exists(dir_ / "out.work")) << gone;
  }
}

TEST_F(Resume, WhatOnlyADroppedTargetHadBegunIsRemoved) {
  QuantizeOptions two = options("out");
  two.bpw = {4.5, 6.0};
  const fs::path partial = dir_ / "out-4.5bpw.partial", saved = dir_ / "saved";
  two.engine.progress = [&](const ProgressEvent& e) {
    if (e.stage != "quantize" || fs::exists(saved)) return;
    fs::copy(dir_ / "out.work", saved, fs::copy_options::recursive);
    fs::copy(partial, dir_ / "saved.partial");
  };
  quantize(two);
  for (const char* name : {"out-4.5bpw", "out-6bpw"}) fs::remove_all(dir_ / name);
  fs::copy(saved, dir_ / "out.work", fs::copy_options::recursive);  // as if it had been killed then
  fs::copy(dir_ / "saved.partial", partial);
  ASSERT_TRUE(fs::exists(partial));
  QuantizeOptions one = options("out");
  one.bpw = {6.0};
  quantize(one);
  EXPECT_FALSE(fs::exists(partial));
  EXPECT_TRUE(fs::exists(dir_ / "out"));
}

TEST_F(Resume, WhatIsSaidOfTheWorkFolderIsSo) {
  std::set<std::string> hints;
  for (int n = 1;; ++n) {
    fs::remove_all(dir_ / "out.work");
    const auto stopped = stopped_at(options("out"), n);
    if (!stopped) break;
    const bool kept = stopped->hint().find("is kept in") != std::string::npos;
    EXPECT_EQ(kept, fs::exists(dir_ / "out.work")) << n << stopped->hint();
    hints.insert(stopped->hint());
  }
  EXPECT_EQ(hints.size(), 2u);
}

TEST_F(Resume, AWorkFolderInTheWrongPlaceIsRefused) {
  QuantizeOptions o = options("out");
  for (const double seconds : {-1.0, std::nan("")}) {
    o.work.checkpoint_seconds = seconds;
    test::expect_error([&] { quantize(o); }, ErrorCode::kUsage, {"--checkpoint"});
  }
  o.work.checkpoint_seconds = 0;
  for (const fs::path& place : {kModel, kModel / "work", dir_ / "out", dir_ / "out" / "work"}) {
    o.work.path = place;
    test::expect_error([&] { quantize(o); }, ErrorCode::kUsage, {"--work"});
  }
  fs::create_directory(dir_ / "thesis");
  write_text(dir_ / "thesis" / "chapter1", "text");
  o.work.path = dir_ / "thesis";
  o.work.restart = true;
  test::expect_error([&] { quantize(o); }, ErrorCode::kUsage, {"thesis", "not made by Bitwright"});
  EXPECT_EQ(contents(dir_ / "thesis").size(), 1u);
  EXPECT_FALSE(fs::exists(dir_ / "out"));
}

}  // namespace
}  // namespace bw
