// The file of a measurement.
#include "fuzz/target.h"
#include "pipeline/measurement.h"

using namespace bw;

BW_FUZZ_TARGET(measurement, input) {
  const auto read = [](std::string_view text) {
    return pipeline::parse_measurement(io::parse_json(text, "input"), "input");
  };
  const std::string once = pipeline::to_json(read(input)).dump();
  fuzz::require(pipeline::to_json(read(once)).dump() == once, "what is saved is read as something else");
}
