// The flags of exllamav2's converter.
#include <fstream>

#include <gtest/gtest.h>

#include "cli/program.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::quoted;
using test::shell;

class Convert : public test::Program {
 protected:
  // convert with the model, a work folder and `more`.
  Outcome convert(const std::string& more) {
    return run("convert -i " + quoted(model_) + " -o " + quoted(work_) + " " + more);
  }
  std::string text() const { return " -c " + quoted(text_); }

  fs::path work_ = dir_ / "work";
};

TEST_F(Convert, WritesWhatQuantizeWrites) {
  const Outcome o = convert("-nr -cf " + quoted(out_) + text() + " -b 4.5 -hb 8 -r 4 -l 32 -ss 0.01");
  EXPECT_EQ(o.status, 0) << o.out;
  EXPECT_FALSE(fs::exists(work_));
  const Outcome q = run("quantize " + quoted(model_) + " -o " + quoted(dir_ / "same") + " --bpw 4.5 --head-bits 8" +
                        " --calib " + quoted(text_) + " --calib-rows 4 --calib-length 32 --shard-size 10486");
  ASSERT_EQ(q.status, 0) << q.out;
  const Outcome same = shell("diff -r -x 'report.*' " + quoted(out_) + " " + quoted(dir_ / "same"));
  EXPECT_EQ(same.status, 0) << same.out;
  EXPECT_FALSE(fs::exists(out_ / "model.safetensors"));  // several shards
}

TEST_F(Convert, LongNamesAndEqualSignsAreTheSame) {
  const Outcome o = run("convert --in_dir " + quoted(model_) + " --out_dir=" + quoted(work_) + " -cf=" + quoted(out_) +
                        text() + " --bits=5 -hb=6 --dataset_rows 2 --length 32");
  EXPECT_EQ(o.status, 0) << o.out;
  EXPECT_NE(o.out.find("target     5 bits per weight"), std::string::npos) << o.out;
}

TEST_F(Convert, MeasuresAloneWithRowsOfItsOwn) {
  const fs::path folder = dir_ / "measured";
  fs::create_directory(folder);
  const Outcome m = convert("-om " + quoted(folder) + text() + " -mr 3 -ml 16");
  EXPECT_EQ(m.status, 0) << m.out;
  const Outcome seen = run("inspect " + quoted(folder / "measurement.json"));
  EXPECT_NE(seen.out.find("3 rows of 16 tokens"), std::string::npos) << seen.out;
  const Outcome q =
      convert("-cf " + quoted(out_) + text() + " -m " + quoted(folder / "measurement.json") + " -b 4 -r 2 -l 32 -mr 9");
  EXPECT_EQ(q.status, 0) << q.out;
  EXPECT_NE(q.out.find("-mr and -ml are of no use with -m"), std::string::npos) << q.out;
  EXPECT_EQ(run("inspect " + quoted(out_)).status, 0);
}

TEST_F(Convert, WhatNeedsNothingIsTold) {
  const Outcome o =
      convert("-cf " + quoted(out_) + text() + " -b 5 -r 2 -l 32 -res -so -hsol 4 -fst -ra 1.0 -rs 1 -mr 2");
  EXPECT_EQ(o.status, 0) << o.out;
  for (const char* note :
       {"convert: -res:", "convert: -so:", "convert: -hsol:", "convert: -fst:", "convert: -mr and -ml:"}) {
    EXPECT_NE(o.out.find(note), std::string::npos) << note << " is not in: " << o.out;
  }
}

TEST_F(Convert, WhatCannotBeObeyedIsRefusedInOneLine) {
  const std::string out = "-cf " + quoted(out_) + text() + " -b 5 -r 2 -l 32 ";
  const auto refuse = [&](const Outcome& o, std::initializer_list<const char*> words) {
    expect_refused(o, 2, words);
    EXPECT_EQ(o.out.find("error: "), o.out.rfind("error: ")) << o.out;
  };
  refuse(convert(out + "-ra 2.5"), {"-ra 2.5", "rope_scaling"});
  refuse(convert(out + "-rs 4"), {"-rs 4", "rope_scaling"});
  refuse(convert(text()), {"-cf is missing", "-om"});
  refuse(convert(out + "-om x.json"), {"-om and -cf exclude each other"});
  refuse(convert("-om x.json -m y.json"), {"-om and -m exclude each other"});
  refuse(convert(out + "-res -nr"), {"-res and -nr"});
  refuse(convert(out + "-hb 7"), {"--head-bits 7"});
  refuse(run("convert -res -o " + quoted(work_)), {"-res alone", "same command again"});
  refuse(run("convert -o " + quoted(work_) + " -cf x"), {"-i is missing"});
  refuse(run("convert -i x -cf y"), {"--out_dir"});
  refuse(convert(out + "-r 0"), {"--dataset_rows"});
  refuse(convert(out + "-xx 3"), {"-xx"});
  fs::create_directory(work_);
  std::ofstream(work_ / "job_new.json") << "{}";
  refuse(convert(out), {"a job of exllamav2's", "another -o"});
  fs::rename(work_ / "job_new.json", work_ / "notes");
  refuse(convert(out + "-nr -q"), {"was not made by Bitwright"});
  EXPECT_TRUE(fs::exists(work_ / "notes"));
}

TEST_F(Convert, ForeignFilesAreNamed) {
  std::ofstream(dir_ / "rows.parquet") << "PAR1";
  const std::string out = "-cf " + quoted(out_) + " -b 5 -r 2 -l 32 ";
  expect_refused(convert(out + "-c " + quoted(dir_ / "rows.parquet")), 3, {"rows.parquet", "parquet"});
  std::ofstream(dir_ / "measurement.json") << R"({"measurement": {}, "last_module_idx": 3})";
  expect_refused(convert(out + text() + " -m " + quoted(dir_ / "measurement.json")), 3,
                 {"exllamav2 wrote this measurement", "measure the model again"});
}

}  // namespace
}  // namespace bw
