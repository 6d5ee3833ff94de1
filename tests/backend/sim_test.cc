// The test device: it must find what it is there to find, and else give the bytes of the CPU.
#include "backend/sim/sim_backend.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "bitwright/error.h"

namespace bw::backend::sim {
namespace {

using std::chrono::milliseconds;

SimOptions one_thread() {
  SimOptions options;
  options.threads = 1;
  return options;
}

std::vector<float> floats_from(Rng& rng, size_t n) {
  std::vector<float> v(n);
  for (float& x : v) x = 2 * rng.next_float() - 1;
  return v;
}

Tensor upload_floats(Backend& device, const std::vector<float>& data, size_t rows = 1) {
  return device.upload(std::span<const float>(data), rows, data.size() / rows);
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

bool all_poison(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0xff}; });
}

void touch(void* at) { *static_cast<volatile char*>(at) = 1; }
char look_at(const void* at) { return *static_cast<const volatile char*>(at); }

class SimDeath : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(SimDeath, TheHostMustNotTouchDeviceMemory) {
  SimBackend device(one_thread());
  const Tensor t = device.allocate(3, 5);
  EXPECT_DEATH(touch(t.memory->pointer()), "");
  EXPECT_DEATH(look_at(t.memory->pointer()), "");
  const Tensor uploaded = upload_floats(device, {1, 2, 3});
  device.wait_all("test");
  EXPECT_DEATH(look_at(uploaded.memory->pointer()), "");
}

TEST_F(SimDeath, TheHostMustNotTouchWhatItHasGivenToAnUpload) {
  SimBackend device(one_thread());
  HostTensor staged = device.stage(1, 4);
  float* data = staged.as<float>().data();
  std::fill_n(data, 4, 1.0f);
  const HostTensor kept = staged;
  const Tensor t = device.upload(std::move(staged));
  EXPECT_DEATH(touch(data), "");
  device.wait_all("test");
  EXPECT_DEATH(look_at(data), "");
  EXPECT_EQ(message_of([&] { device.upload(kept); }),
            "host memory is uploaded that an earlier upload was given for good");
}

TEST_F(SimDeath, TheHostMustNotTouchADownloadBeforeItHasWaited) {
  SimBackend device(one_thread());
  const HostTensor result = device.download(upload_floats(device, {1, 2, 3}));
  EXPECT_THROW(result.as<float>(), Error);
  device.wait(device.mark(), "something else");
  EXPECT_DEATH(look_at(result.memory->pointer()), "");
  device.wait(result, "test");
  EXPECT_EQ(result.as<float>()[2], 3.0f);
}

TEST_F(SimDeath, RunningOverTheEndFaultsOnBothSides) {
  for (const size_t bytes : {1, 100, 4096, 5000}) {
    const TwoSided memory(bytes, TwoSided::HostSide::kOpen);
    const size_t end = (bytes + 63) / 64 * 64;
    touch(memory.host_side() + end - 1);
    EXPECT_EQ(look_at(memory.device_side() + end - 1), 1);
    EXPECT_DEATH(touch(memory.host_side() + end), "");
    EXPECT_DEATH(touch(memory.device_side() + end), "");
  }
}

TEST(Sim, FreshMemoryIsPoisoned) {
  SimBackend device(one_thread());
  EXPECT_TRUE(all_poison(device.stage(3, 7).raw()));
  for (int round = 0; round < 2; ++round) {  // pages that were used before as well
    const Tensor t = device.allocate(50, 100);
    const HostTensor fresh = device.download(t);
    device.enqueue(op::Fill{t, 1});
    device.wait(fresh, "test");
    EXPECT_TRUE(all_poison(fresh.raw()));
  }
}

TEST(Sim, EmptyTensorsWork) {
  SimBackend device(one_thread());
  const Tensor t = device.upload(device.stage(0, 5));
  device.enqueue(op::Scale{t, 2});
  device.enqueue(op::Copy{t, device.allocate(0, 5)});
  EXPECT_TRUE(device.read<float>(t, "test").empty());
  EXPECT_TRUE(device.read<float>(device.upload(device.download(t)), "test").empty());
}

TEST(Sim, DownloadsKeepWhatWasThereWhenTheyWereEnqueued) {
  SimOptions options = one_thread();
  options.copy_delay = milliseconds(5);
  SimBackend device(options);
  const Tensor t = upload_floats(device, {1, 2, 3, 4, 5, 6}, 2);
  const HostTensor before = device.download(t.cols_slice(1, 2));
  device.enqueue(op::Fill{t, 9});
  const HostTensor after = device.download(t.rows_slice(1, 1));
  const Tensor again = device.upload(device.download(t.cols_slice(0, 1)));
  device.enqueue(op::Fill{t, 10});
  device.wait(after, "test");
  device.wait(before, "test");
  EXPECT_EQ(std::vector(before.as<float>().begin(), before.as<float>().end()), (std::vector<float>{2, 3, 5, 6}));
  EXPECT_EQ(std::vector(after.as<float>().begin(), after.as<float>().end()), (std::vector<float>{9, 9, 9}));
  EXPECT_EQ(device.read<float>(again, "test"), (std::vector<float>{9, 9}));
}

TEST(Sim, HandlesThatAnOperationAloneHoldsAreFreeBehindIt) {
  SimOptions options = one_thread();
  options.launch_delay = milliseconds(5);  // the copies are there long before
  SimBackend device(options);
  const std::vector<float> twos(8, 2.0f), threes(8, 3.0f);
  const Tensor sum = device.zeros(1, 8);
  for (int i = 1; i <= 4; ++i) {
    device.enqueue(op::Add{upload_floats(device, twos), sum});
    const Tensor other = upload_floats(device, threes);  // must not come into what the operation still reads
    EXPECT_EQ(device.read<float>(sum, "test"), std::vector<float>(8, 2.0f * static_cast<float>(i)));
  }
}

TEST(Sim, MemoryIsNotReusedBeforeItsLastUse) {
  SimOptions options = one_thread();
  options.launch_delay = milliseconds(2);
  SimBackend device(options);
  const Tensor sum = device.allocate(64, 64);
  device.enqueue(op::Fill{sum, 0});
  for (int i = 1; i <= 20; ++i) {
    const Tensor x = upload_floats(device, std::vector<float>(64 * 64, static_cast<float>(i)), 64);
    const Tensor y = device.allocate(64, 64);
    device.enqueue(op::Copy{x, y});
    device.enqueue(op::Add{y, sum});
  }
  EXPECT_EQ(device.read<float>(sum, "test"), std::vector<float>(64 * 64, 210.0f));
}

TEST(Sim, LatencyReallyDelays) {
  SimOptions options = one_thread();
  options.launch_delay = milliseconds(10);
  options.copy_delay = milliseconds(20);
  options.copy_bytes_per_second = 1e6;
  SimBackend device(options);
  const auto begin = std::chrono::steady_clock::now();
  const auto since = [&] { return std::chrono::steady_clock::now() - begin; };
  const Tensor t = upload_floats(device, std::vector<float>(5000));  // 20 + 20 ms
  device.enqueue(op::Scale{t, 2});
  device.wait(device.mark(), "test");
  EXPECT_GE(since(), milliseconds(50));
  EXPECT_GE(device.counters().wait_seconds, 0.04);
}

TEST(Sim, OtherDevicesMemoryIsRefused) {
  SimBackend device(one_thread()), other(one_thread());
  const auto cpu = make_cpu_backend(1);
  const Tensor t = device.allocate(1, 4);
  EXPECT_THROW(device.enqueue(op::Copy{other.allocate(1, 4), t}), Error);
  EXPECT_THROW(device.enqueue(op::Copy{t, cpu->allocate(1, 4)}), Error);
  EXPECT_THROW(device.upload(cpu->stage(1, 4)), Error);
  const auto weight = cpu->pack_weight(cpu->allocate(4, 4), Precision::kF32);
  EXPECT_THROW(device.enqueue(op::Linear{t, weight, {}, device.allocate(1, 4)}), Error);
}

TEST(Sim, TheMemoryLimitHolds) {
  SimOptions options = one_thread();
  options.memory_limit = 4'000'000;
  SimBackend device(options);
  EXPECT_EQ(device.memory_limit(), 4'000'000u);
  Tensor a = device.allocate(1, 800'000);
  EXPECT_EQ(message_of([&] { device.allocate(1, 300'000); }),
            "device sim: 1.2 MB more are needed, but 3.2 MB of 4.0 MB are in use; give more --device-memory: a "
            "batch of 4096 tokens, the weights of two layers and the head must fit");
  device.enqueue(op::Fill{a, 1});
  const uint64_t waits = device.counters().waits;
  a = {};
  const Tensor b = device.allocate(1, 1'000'000);  // what was kept for reuse is let go of, once nothing uses it
  EXPECT_GT(device.counters().waits, waits);
  EXPECT_EQ(device.counters().device_bytes, 4'000'000u);
  EXPECT_THROW(upload_floats(device, {1}), Error);
  EXPECT_THROW(device.allocate(size_t{1} << 40, 1 << 10), Error);
  EXPECT_EQ(device.counters().most_device_bytes, 4'000'000u);
}

TEST(Sim, WeightsTakeDeviceMemory) {
  SimOptions options = one_thread();
  options.bf16_hardware = true;
  SimBackend device(options);
  const Tensor x = device.allocate(10, 10);
  EXPECT_EQ(device.counters().device_bytes, 400u);
  const auto in_float = device.pack_weight(x, Precision::kF32);
  EXPECT_EQ(device.counters().device_bytes, 800u);
  const auto in_bf16 = device.pack_weight(x, Precision::kAuto);
  EXPECT_EQ(device.counters().device_bytes, 1000u);
  EXPECT_EQ(device.counters().most_device_bytes, 1000u);
  device.wait_all("test");
}

TEST(Sim, HandlesMayOutliveTheDevice) {
  auto device = make_sim_backend(one_thread());
  EXPECT_EQ(device->name(), "sim");
  EXPECT_FALSE(device->runs_at_once());
  const Tensor t = upload_floats(*device, {1, 2});
  const HostTensor staged = device->stage(2, 2);
  const auto weight = device->pack_weight(t, Precision::kF32);
  device.reset();
  EXPECT_EQ(staged.as<float>().size(), 4u);
}

TEST(Sim, QueuedWorkIsDroppedWithTheDevice) {
  SimOptions options = one_thread();
  options.launch_delay = options.copy_delay = milliseconds(20);
  const auto begin = std::chrono::steady_clock::now();
  {
    SimBackend device(options);
    for (int i = 0; i < 200; ++i) {
      const Tensor t = upload_floats(device, std::vector<float>(100));
      device.enqueue(op::Scale{t, 2});
      device.download(t);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(200 * 20 / 2));
}

TEST(Sim, QueuesThatForgetToWaitAreFound) {
  SimOptions options = one_thread();
  options.forget_waits = true;
  SimBackend device(options);
  const Tensor y = device.allocate(2, 2), weight = device.allocate(1, 2);
  const Tensor x = upload_floats(device, {1, 2, 3, 4}, 2);
  EXPECT_EQ(message_of([&] {
              device.enqueue(op::RmsNorm{x, weight, 1e-6f, y});
            }),
            "'rms norm' reads memory that an upload still writes; no event orders them");
  device.enqueue(op::Fill{y, 1});
  EXPECT_EQ(message_of([&] { device.download(y); }),
            "a download reads memory that 'fill' still writes; no event orders them");
  device.wait_all("test");  // now the host knows
  const HostTensor copied = device.download(y);
  EXPECT_EQ(message_of([&] {
              device.enqueue(op::Scale{y, 2});
            }),
            "'scale' writes memory that a download still reads; no event orders them");
  EXPECT_EQ(message_of([&] { device.upload(copied); }),
            "an upload reads memory that a download still writes; no event orders them");
}

TEST(Sim, ReuseThatForgetsToWaitIsFound) {
  SimOptions options = one_thread();
  options.forget_waits = true;
  options.memory_limit = 4000;  // room for one
  SimBackend device(options);
  device.download(device.allocate(30, 30));
  EXPECT_EQ(message_of([&] { device.allocate(30, 30); }),
            "'reuse' writes memory that a download still reads; no event orders them");
}

TEST(Sim, AnErrorIsThrownByTheFirstWaitForWhatCameAfterIt) {
  SimBackend device(one_thread());
  const Tensor x = upload_floats(device, {1, 2}), cos_sin = upload_floats(device, {1, 0});
  const Event before = device.mark();
  const Tensor outside = device.allocate(1, 1, DType::kI32);
  device.enqueue(op::Fill{outside, 1});
  device.enqueue(op::Rope{x, 2, outside, cos_sin});
  device.enqueue(op::Fill{x, 7});
  const HostTensor result = device.download(x);
  device.wait(before, "test");
  EXPECT_THROW(device.wait(result, "test"), Error);
  EXPECT_EQ(device.read<float>(x, "test"), (std::vector<float>{1, 2}));  // the fill was skipped, too
  device.enqueue(op::Fill{x, 7});
  EXPECT_EQ(device.read<float>(x, "test"), (std::vector<float>{7, 7}));
  device.enqueue(op::Rope{x, 2, device.allocate(1, 1, DType::kI32), cos_sin});  // poison is no position
}

// A byte and a flop take a nanosecond, each launch 100, each copy 50 more, enqueueing 10.
SimModel round_numbers() {
  SimModel model;
  model.flops_per_s = model.bytes_per_s = model.copy_bytes_per_s = model.host_bytes_per_s = 1e9;
  model.launch_ns = 100;
  model.copy_latency_ns = 50;
  model.host_enqueue_ns = 10;
  return model;
}

TEST(Timeline, FollowsTheQueuesByHand) {
  SimOptions options = one_thread();
  options.model = round_numbers();
  SimBackend device(options);
  const Tensor y = device.allocate(1, 10);
  const Tensor x = upload_floats(device, std::vector<float>(250));  // host 1010, upload 1010 to 2060
  device.enqueue(op::Fill{y, 1});                                   // host 1020, compute 1020 to 1160, beside it
  EXPECT_EQ(device.timeline().busy_ns, (std::array<int64_t, 3>{140, 1050, 0}));
  EXPECT_EQ(device.timeline().end_ns, 2060);
  device.enqueue(op::Scale{x, 2});  // host 1030, compute waits for the upload: 2060 to 3160
  EXPECT_EQ(device.timeline().end_ns, 3160);
  EXPECT_EQ(device.timeline().host_ns, 1030);
  const HostTensor result = device.download(x);  // host 1040, download 3160 to 4210
  device.enqueue(op::Fill{y, 2});                // host 1050, compute 3160 to 3300
  EXPECT_EQ(device.timeline().waited_ns, 0);
  device.wait(result, "test");
  const SimTimeline end = device.timeline();
  EXPECT_EQ(end.host_ns, 4210);
  EXPECT_EQ(end.waited_ns, 4210 - 1050);
  EXPECT_EQ(end.busy_ns, (std::array<int64_t, 3>{1380, 1050, 1050}));
  EXPECT_EQ(end.end_ns, 4210);
  device.upload(result);  // the host has nothing to make: host 4220, upload 4220 to 5270
  EXPECT_EQ(device.timeline().end_ns, 5270);
  device.enqueue(op::Gemm{y, false, y, true, device.allocate(1, 1)});  // 20 flops: host 4230, compute 4230 to 4350
  EXPECT_EQ(device.timeline().busy_ns[0], 1500);
}

// Layers whose weights take 1050 ns to upload and `compute_ns` to use.
SimTimeline layers(double compute_ns, bool fetch_ahead) {
  SimOptions options = one_thread();
  options.model = round_numbers();
  options.model.host_bytes_per_s = 1e12;
  options.model.launch_ns = compute_ns - 1000;
  SimBackend device(options);
  const std::vector<float> weights(250);
  Tensor next = upload_floats(device, weights);
  for (int layer = 0; layer < 30; ++layer) {
    const Tensor now = next;
    if (fetch_ahead) next = upload_floats(device, weights);
    device.enqueue(op::Scale{now, 2});
    device.wait(device.mark(), "layer");
    if (!fetch_ahead) next = upload_floats(device, weights);
  }
  device.wait_all("end");
  return device.timeline();
}

TEST(Timeline, CopiesAndWorkOverlapIfTheHostFetchesAhead) {
  for (const double compute_ns : {1050.0, 3000.0}) {
    const SimTimeline ahead = layers(compute_ns, true), late = layers(compute_ns, false);
    const auto bound = [](const SimTimeline& t) { return static_cast<double>(std::max(t.busy_ns[0], t.busy_ns[1])); };
    EXPECT_LE(static_cast<double>(ahead.end_ns), 1.1 * bound(ahead));
    EXPECT_GT(static_cast<double>(late.end_ns), 1.25 * bound(late));
    EXPECT_EQ(ahead.end_ns, layers(compute_ns, true).end_ns);
  }
}

TEST(Sim, TracesWhatRanOnEachQueue) {
  Trace trace;
  SimBackend device(one_thread());
  device.trace_to(&trace);
  const Tensor x = upload_floats(device, {1, 2, 3, 4}, 2);
  device.enqueue(op::Gemm{x, false, x, false, device.allocate(2, 2)});
  device.read<float>(x, "result");
  std::vector<std::string> seen;
  for (const Span& s : trace.spans()) {
    EXPECT_LE(s.begin_ns, s.end_ns);
    seen.push_back(std::string(s.track) + "/" + s.name + "/" + std::to_string(s.bytes) + "/" +
                   std::to_string(static_cast<int>(s.flops)));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<std::string>{"compute/gemm/0/16", "download/download/16/0", "upload/upload/16/0",
                                            "waits/result/0/0"}));
}

// The same calls on two devices; what is read from them must be the same bytes.
class Pair {
 public:
  Pair(Backend& sim, Backend& cpu, uint64_t seed) : devices_{&sim, &cpu}, rng_(seed) {
    for (size_t i = 0; i < kTensors; ++i) upload(i);
  }

  void step() {
    from_ = rng_.below(kTensors);
    to_ = (from_ + 1 + rng_.below(kTensors - 1)) % kTensors;
    const uint32_t choice = rng_.below(8);
    if (choice == 0) return upload(to_);
    if (choice == 1) return results_.empty() ? download() : compare();
    for (int i = 0; i < 2; ++i) enqueue(*devices_[i], tensors_[i], choice);
    if (choice == 2) download();
  }
  // Waits for one of the downloads.
  void compare() {
    const size_t n = rng_.below(static_cast<uint32_t>(results_.size()));
    const std::array<HostTensor, 2> result = results_[n];
    results_.erase(results_.begin() + static_cast<std::ptrdiff_t>(n));
    for (int i = 0; i < 2; ++i) devices_[i]->wait(result[i], "test");
    const auto sim = result[0].raw(), cpu = result[1].raw();
    ASSERT_TRUE(std::equal(sim.begin(), sim.end(), cpu.begin(), cpu.end()));
  }
  void finish() {
    download();
    while (!results_.empty()) compare();
  }

 private:
  static constexpr uint32_t kSize = 37, kTensors = 4;

  void upload(size_t to) {
    const std::vector<float> data = floats_from(rng_, kSize * kSize);
    for (int i = 0; i < 2; ++i) tensors_[i][to] = upload_floats(*devices_[i], data, kSize);
  }
  void download() {
    results_.emplace_back();
    for (int i = 0; i < 2; ++i) results_.back()[i] = devices_[i]->download(tensors_[i][from_].cols_slice(from_, 20));
  }
  void enqueue(Backend& device, std::array<Tensor, kTensors>& t, uint32_t choice) const {
    if (choice == 2) device.enqueue(op::Add{t[from_].cols_slice(3, 9), t[to_].cols_slice(20, 9)});
    if (choice == 3) device.enqueue(op::Softcap{t[to_].rows_slice(1, 5), 3});
    if (choice == 4) t[to_] = device.upload(device.download(t[from_]));
    if (choice == 5) {
      const Tensor product = device.allocate(kSize, kSize);
      device.enqueue(op::Gemm{t[from_], false, t[to_], true, product, 0.1f, 0, Precision::kAuto});
      t[to_] = product;
    }
    if (choice == 6) {
      const auto weight = device.pack_weight(t[from_], Precision::kF32);
      device.enqueue(op::Linear{t[to_], weight, {}, t[(to_ + 1) % kTensors], true});
    }
    if (choice == 7) {
      const Tensor twice = device.allocate(kSize, kSize);
      device.enqueue(op::Copy{t[to_], twice});
      device.enqueue(op::Scale{twice, -0.6f});
      t[to_] = device.upload(device.download(twice));
    }
  }

  std::array<Backend*, 2> devices_;
  Rng rng_;
  std::array<std::array<Tensor, kTensors>, 2> tensors_;
  std::vector<std::array<HostTensor, 2>> results_;
  uint32_t from_ = 0, to_ = 0;
};

TEST(Sim, LongSequencesGiveTheBytesOfTheCpu) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    SimOptions options;
    options.threads = 1 + seed % 3;
    options.memory_limit = seed == 5 ? 40 * 37 * 37 : 0;  // room for ten tensors
    if (seed % 2 == 1) options.launch_delay = options.copy_delay = std::chrono::microseconds(50);
    SimBackend sim(options);
    const auto cpu = make_cpu_backend(1);
    Pair pair(sim, *cpu, seed);
    for (int i = 0; i < 500 && !HasFatalFailure(); ++i) pair.step();
    pair.finish();
  }
}

}  // namespace
}  // namespace bw::backend::sim
