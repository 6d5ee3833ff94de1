// What a job tells of its result: the report and the model card in the output.
#include <fstream>

#include <gtest/gtest.h>

#include "bitwright/bitwright.h"
#include "io/json.h"
#include "pipeline/documents.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/stopped.h"
#include "support/temp_dir.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

class ReportOf : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(text_);
    for (int i = 0; i < 200; ++i) text << "Line " << i * i << " of the log says so. ";
  }

  QuantizeOptions options(std::vector<double> bpw) {
    QuantizeOptions o;
    o.model = fs::path(BW_FIXTURES) / "models" / "llama";
    o.output = dir_ / "out";
    o.bpw = std::move(bpw);
    o.calibration = {{text_}, 4, 32, 1};
    o.engine.threads = 1;
    o.work.checkpoint_seconds = 0;
    o.command = "bitwright quantize it";
    return o;
  }

  io::Json data(const fs::path& model) { return io::load_json(model / "report.json"); }

  test::TempDir dir_;
  fs::path text_ = dir_ / "text.txt";
};

TEST_F(ReportOf, AJobTellsWhatItDid) {
  const QuantizeResult r = quantize(options({4.5})).at(0);
  const io::Json j = data(r.output);
  EXPECT_EQ(j.at("command"), "bitwright quantize it");
  EXPECT_EQ(j.at("bytes"), r.written_bytes);
  EXPECT_EQ(j.at("bpw_target"), 4.5);
  EXPECT_EQ(j.at("bpw_linears"), r.bpw_linears);
  EXPECT_EQ(j.at("predicted_kld"), r.predicted_kld);
  EXPECT_EQ(j.at("measured").at("kld").at("value"), r.measured.kld.value);
  EXPECT_EQ(j.at("calibration").at("rows"), 4);
  EXPECT_EQ(j.at("calibration").at("sources").at(0).at("share"), 1.0);
  EXPECT_GT(j.at("peak_memory"), 1 << 20);
  ASSERT_EQ(j.at("warnings").size(), 1u);  // of tensors that are dropped
  double price = 0, bits = 0, weights = 0;
  for (const io::Json& l : j.at("linears")) {
    price += l.at("price").get<double>();
    if (l.at("key") == "lm_head") continue;
    const double size = l.at("in").get<double>() * l.at("out").get<double>();
    bits += l.at("bpw").get<double>() * size;
    weights += size;
  }
  EXPECT_NEAR(price, r.predicted_kld, 1e-9);
  EXPECT_NEAR(bits / weights, r.bpw_linears, 1e-9);
}

TEST_F(ReportOf, TakesNoMoreRoomThanWasAskedForBeforehand) {
  const QuantizeResult r = quantize(options({4.5})).at(0);
  uint64_t bytes = 0;
  for (const char* name : {"README.md", "report.html", "report.json"}) bytes += fs::file_size(r.output / name);
  EXPECT_LT(bytes, pipeline::bytes_of_documents(2 * 7 + 1));
}

TEST_F(ReportOf, TheFrontierFallsGoesThroughTheModelAndIsNoWorseThanUniformPlans) {
  const QuantizeResult r = quantize(options({4.5})).at(0);
  const io::Json j = data(r.output);
  const auto kld = [](const io::Json& point) { return point.at("predicted_kld").get<double>(); };
  const auto bpw = [](const io::Json& point) { return point.at("bpw").get<double>(); };
  const io::Json& frontier = j.at("frontier");
  ASSERT_GT(frontier.size(), 10u);
  bool through = false;
  for (size_t i = 0; i < frontier.size(); ++i) {
    EXPECT_LE(kld(frontier[i]), kld(frontier[i > 0 ? i - 1 : 0]));
    through |= std::abs(bpw(frontier[i]) - r.bpw_linears) < 1e-9 && std::abs(kld(frontier[i]) - r.predicted_kld) < 1e-9;
  }
  EXPECT_TRUE(through);
  ASSERT_GT(j.at("uniform").size(), 6u);
  for (const io::Json& uniform : j.at("uniform")) {
    for (const io::Json& best : frontier) {
      EXPECT_TRUE(bpw(best) < bpw(uniform) || kld(best) <= kld(uniform) + 1e-12) << uniform.at("name");
    }
  }
}

TEST_F(ReportOf, DrawnAgainItIsTheSame) {
  const auto results = quantize(options({4, 5}));
  const ReportResult one = read_reports({{results[0].output}});
  EXPECT_EQ(one.page, test::read_bytes(results[0].output / "report.html"));
  EXPECT_EQ(one.data, test::read_bytes(results[0].output / "report.json"));
  const ReportResult both = read_reports({{results[0].output, results[1].output / "report.json"}});
  ASSERT_EQ(both.models.size(), 2u);
  EXPECT_EQ(both.models[1].bpw_linears, results[1].bpw_linears);
  EXPECT_NE(both.page.find("2 quantized models"), std::string::npos);
}

TEST_F(ReportOf, WhatIsNoModelOfOursIsRefused) {
  expect_error([] { read_reports({}); }, ErrorCode::kUsage, {"no model"});
  expect_error([&] { read_reports({{dir_ / "none"}}); }, ErrorCode::kIo, {"none", "report.json"});
  std::ofstream(dir_ / "report.json") << "{\"format\": \"bitwright report\"}";
  expect_error([&] { read_reports({{dir_.path()}}); }, ErrorCode::kModel, {"report.json", "format_version"});
}

TEST_F(ReportOf, AResumedJobRecallsWhatEarlierRunsHaveWarnedOf) {
  // Rows longer than the model's positions: warned of when they are made, which a resumed job does not need to be.
  QuantizeOptions o = options({4.5});
  o.calibration.length = 128;
  o.calibration.rows = 2;
  quantize(o);
  const io::Json whole = data(o.output).at("warnings");
  fs::remove_all(o.output);
  int stops = 0;
  for (int n = 2; test::stopped_at(o, n); ++n) ++stops;
  EXPECT_GT(stops, 1);
  EXPECT_EQ(data(o.output).at("warnings"), whole);
}

}  // namespace
}  // namespace bw
