// The device options of the program: --device, --device-memory, --profile and --trace.
#include <fstream>

#include <gtest/gtest.h>

#include "cli/program.h"
#include "io/file_write.h"
#include "io/json.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::quoted;

class DeviceOptions : public test::Program {
 protected:
  std::string read(const fs::path& path) { return io::read_file(path, uint64_t{1} << 30); }
};

TEST_F(DeviceOptions, TheTestDeviceWritesTheSameBytes) {
  ASSERT_EQ(quantize(model_, "--bpw 5").status, 0);
  const std::string cpu = read(out_ / "model.safetensors");
  fs::remove_all(out_);
  const Outcome sim = quantize(model_, "--bpw 5 --device sim");
  ASSERT_EQ(sim.status, 0) << sim.out;
  EXPECT_EQ(read(out_ / "model.safetensors"), cpu);
}

TEST_F(DeviceOptions, AnUnknownDeviceIsRefusedWithThoseThatThereAre) {
  expect_refused(quantize(model_, "--bpw 5 --device abacus"), 2, {"--device", "abacus", "cpu", "sim"});
}

TEST_F(DeviceOptions, TooLittleDeviceMemoryIsRefusedWithWhatIsNeeded) {
  expect_refused(quantize(model_, "--bpw 5 --device sim --device-memory 10kB"), 5, {"device sim", "--device-memory"});
  expect_refused(quantize(model_, "--bpw 5 --device sim --device-memory much"), 2, {"--device-memory", "much"});
}

TEST_F(DeviceOptions, TheProfileShowsCopiesAndWaits) {
  const Outcome o = quantize(model_, "--bpw 5 --device sim --profile");
  ASSERT_EQ(o.status, 0) << o.out;
  for (const char* word : {"waits", "to device", "from device", "measure: forward", "quantize: GPTQ"}) {
    EXPECT_NE(o.out.find(word), std::string::npos) << word << " is not in: " << o.out;
  }
}

TEST_F(DeviceOptions, TheTraceHasStagesLayersOperationsCopiesAndWaits) {
  const fs::path trace = dir_ / "trace.json";
  ASSERT_EQ(quantize(model_, "--bpw 5 --device sim --trace " + quoted(trace)).status, 0);
  const io::Json events = io::load_json(trace).at("traceEvents");
  std::map<int, std::string> tracks;
  std::map<std::string, size_t> spans;
  for (const io::Json& e : events) {
    if (e.at("name") == "thread_name") tracks[e.at("tid")] = e.at("args").at("name").get<std::string>();
  }
  for (const io::Json& e : events) {
    if (e.at("ph") == "X") ++spans[tracks.at(e.at("tid"))];
  }
  for (const char* track : {"stages", "layers", "compute", "upload", "download", "waits"}) {
    EXPECT_GT(spans[track], 0u) << track;
  }
}

TEST_F(DeviceOptions, ATraceThatCannotBeWrittenIsRefusedAtOnce) {
  expect_refused(quantize(model_, "--bpw 5 --trace " + quoted(dir_ / "no" / "where.json")), 5, {"where.json"});
  expect_refused(quantize(copy_model(), "--bpw 5 --trace " + quoted(dir_ / "model" / "t.json")), 2,
                 {"t.json", "inside the model"});
}

}  // namespace
}  // namespace bw
