// The device options of the program: --device, --device-memory, --profile and --trace.
#include <fstream>
#include <sstream>

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
  for (const char* odd : {"much", "0", "''"}) {
    expect_refused(quantize(model_, std::string("--bpw 5 --device sim --device-memory ") + odd), 2,
                   {"--device-memory"});
  }
  expect_refused(quantize(model_, "--bpw 5 --device-memory 1GB"), 2, {"--device-memory", "cpu"});
}

TEST_F(DeviceOptions, TheProfileShowsCopiesAndWaits) {
  const Outcome o = quantize(model_, "--bpw 5 --device sim --profile");
  ASSERT_EQ(o.status, 0) << o.out;
  for (const char* word :
       {"waits", "to device", "from device", "gradients: backward", "measure: prices", "quantize: GPTQ"}) {
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
  expect_refused(quantize(model_, "--bpw 5 --trace " + quoted(dir_.path())), 2, {"--trace", "directory"});
  expect_refused(quantize(model_, "--bpw 5 --trace ''"), 2, {"--trace", "empty"});
}

TEST_F(DeviceOptions, ATraceNeverOverwritesWhatIsReadOrWritten) {
  const fs::path model = copy_model();
  const std::string weights = read(model / "model.safetensors"), text = read(text_);
  fs::create_symlink(model / "new.json", dir_ / "link.json");
  for (const fs::path& file :
       {model / "t.json", model / "model.safetensors", text_, dir_ / "link.json", out_, out_ / "trace.json"}) {
    expect_refused(quantize(model, "--bpw 5 --trace " + quoted(file)), 2, {"--trace"});
  }
  // The original is linked to from a directory of links, as hubs' caches are.
  fs::create_directories(dir_ / "snapshot");
  for (const auto& entry : fs::directory_iterator(model)) {
    fs::create_symlink(entry.path(), dir_ / "snapshot" / entry.path().filename());
  }
  expect_refused(quantize(dir_ / "snapshot", "--bpw 5 --trace " + quoted(model / "model.safetensors")), 2, {"--trace"});

  const std::string eval =
      "eval " + quoted(model_) + " --ref " + quoted(model) + " --text " + quoted(text_) + " --rows 2 --length 32 ";
  for (const char* option : {"--trace", "--json"}) {
    for (const fs::path& file : {model / "config.json", text_}) {
      expect_refused(run(eval + option + " " + quoted(file)), 2, {option});
    }
  }
  expect_refused(run(eval + "--trace " + quoted(dir_ / "same") + " --json " + quoted(dir_ / "same")), 2, {"--json"});
  EXPECT_EQ(read(model / "model.safetensors"), weights);
  EXPECT_EQ(read(text_), text);
  EXPECT_FALSE(fs::exists(model / "new.json"));
}

TEST_F(DeviceOptions, TheProfileAddsUp) {
  const Outcome o = quantize(model_, "--bpw 5 --profile --device sim");
  ASSERT_EQ(o.status, 0) << o.out;
  uint64_t launches = 0, total = 0;
  std::istringstream lines(o.out.substr(o.out.find("\nstage ")));
  std::string line;
  std::getline(lines, line), std::getline(lines, line);
  while (std::getline(lines, line) && line.size() > 70) {
    const uint64_t n = std::stoull(line.substr(60, 9));
    (line.starts_with("total") ? total : launches) += n;
    EXPECT_GE(std::stod(line.substr(30, 9)), 0) << line;
    EXPECT_LT(n, 1u << 20) << line;  // counted twice elsewhere, it would wrap
  }
  EXPECT_GT(total, 100u);
  EXPECT_EQ(launches, total) << o.out;
}

TEST_F(DeviceOptions, GenerateShowsItsProfile) {
  const Outcome o = run("generate " + quoted(model_) + " --prompt tides -n 2 --profile");
  EXPECT_EQ(o.status, 0) << o.out;
  EXPECT_NE(o.out.find("generate: write"), std::string::npos) << o.out;
}

TEST_F(DeviceOptions, AFailedRunLeavesItsTrace) {
  const fs::path trace = dir_ / "trace.json";
  const Outcome o = quantize(model_, "--bpw 5 --device sim --device-memory 100kB --trace " + quoted(trace));
  EXPECT_EQ(o.status, 5) << o.out;
  EXPECT_FALSE(io::load_json(trace).at("traceEvents").empty());
}

}  // namespace
}  // namespace bw
