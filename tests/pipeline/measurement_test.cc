// Files of measurements that were not written by us.
#include "pipeline/measurement.h"

#include <gtest/gtest.h>

#include "codec/exl2.h"
#include "support/errors.h"

namespace bw::pipeline {
namespace {

// A layout of one run.
io::Json run(uint32_t bits, uint32_t rows, uint32_t group_size) {
  return io::Json::array({io::Json::array({bits, rows, group_size})});
}

// A measurement of no linears and this head.
io::Json measurement_of(uint32_t in, uint32_t out, const io::Json& layout) {
  io::Json json = io::Json::parse(to_json(Measurement{}).dump());
  const io::Json candidate = {{"layout", layout}, {"price", 0}};
  json["head"] = {{"key", "lm_head"}, {"in", in}, {"out", out}, {"bias_bits", 0u}};
  json["head"]["candidates"] = io::Json::array({candidate});
  return json;
}

void refused(const io::Json& json, std::string_view words) {
  test::expect_error([&] { parse_measurement(json, "m.json"); }, ErrorCode::kModel, {"m.json", words});
}

TEST(ParseMeasurement, ReadsWhatItWrites) {
  const io::Json json = measurement_of(64, 96, run(4, 64, 32));
  const Measurement m = parse_measurement(json, "m.json");
  ASSERT_EQ(m.head.candidates.size(), 1u);
  EXPECT_EQ(m.head.candidates[0].bits, codec::stored_bits({{{4, 64, 32}}}, 96));
  EXPECT_EQ(to_json(parse_measurement(io::Json::parse(to_json(m).dump()), "again")), to_json(m));
}

// A layout is made of groups: of a linear with 2^30 inputs there would be gigabytes of them.
TEST(ParseMeasurement, RefusesLinearsThatCannotBeStored) {
  refused(measurement_of(1u << 30, 96, run(2, 1u << 30, 32)), "cannot be stored");
  refused(measurement_of(65536, 96, run(2, 65536, 32)), "cannot be stored");
  refused(measurement_of(64, 0, run(2, 64, 32)), "cannot be stored");
}

TEST(ParseMeasurement, ErrorsShowNoControlCharacters) {
  io::Json json = measurement_of(64, 96, run(9, 64, 32));
  json["head"]["key"] = "a\nb\x1b[2J";
  refused(json, "m.json: a?b?[2J");
}

}  // namespace
}  // namespace bw::pipeline
