// Copies and computing at the same time, on the model clock of the test device: the same in every run.
#include <gtest/gtest.h>

#include "pipeline/device_job.h"

namespace bw::pipeline {
namespace {

using backend::Queue;
using backend::sim::make_sim_backend;
using backend::sim::SimModel;
using backend::sim::SimOptions;
using backend::sim::SimTimeline;

constexpr size_t kRows = 16, kLength = 128;
const test::TinySizes kDeep{.hidden = 64, .intermediate = 96, .layers = 24, .vocab = 96};

int64_t busy(const SimTimeline& t, Queue queue) { return t.busy_ns[static_cast<size_t>(queue)]; }

// What the slowest queue was busy, on the way forward and on the way back: the passes load the queues differently, and
// one cannot begin before the other.
int64_t slowest(const StageOutcome& o) {
  int64_t forward = 0, back = 0;
  for (size_t q = 0; q < backend::kQueues; ++q) {
    forward = std::max(forward, o.halfway.busy_ns[q]);
    back = std::max(back, o.timeline.busy_ns[q] - o.halfway.busy_ns[q]);
  }
  return forward + back;
}

// The host's own share is made small: these tests are about the device's queues.
SimOptions device(double copy_latency_ns, uint64_t memory_limit = 0) {
  SimOptions options;
  options.threads = 2;
  options.memory_limit = memory_limit;
  options.model.host_enqueue_ns = 100;
  options.model.host_bytes_per_s = 1e12;
  options.model.copy_latency_ns = copy_latency_ns;
  return options;
}

// Latency of a copy that makes the uploads of a measuring run take `share` of its computing.
double latency_for(DeviceJob& job, double share) {
  const StageOutcome probe = job.measure(make_sim_backend(device(0)), kRows, kLength);
  return share * static_cast<double>(busy(probe.timeline, Queue::kCompute)) /
         static_cast<double>(probe.counters.uploads);
}

TEST(Overlap, WeightsTravelWhileTheDeviceComputes) {
  DeviceJob job(kDeep);
  for (const double share : {0.25, 1.0, 4.0}) {
    const SimOptions options = device(latency_for(job, share));
    for (const bool measuring : {true, false}) {
      const StageOutcome outcome = measuring ? job.measure(make_sim_backend(options), kRows, kLength)
                                             : job.quantize(make_sim_backend(options), kRows, kLength, 4.5);
      const SimTimeline& t = outcome.timeline;
      EXPECT_LE(static_cast<double>(t.end_ns), 1.1 * static_cast<double>(slowest(outcome)))
          << (measuring ? "measure" : "quantize") << ", copies " << share << ": computing " << busy(t, Queue::kCompute)
          << " ns, uploads " << busy(t, Queue::kUpload) << " ns, downloads " << busy(t, Queue::kDownload) << " ns";
      EXPECT_GT(busy(t, Queue::kUpload), 0);
    }
  }
}

TEST(Overlap, StatesTravelWhileTheDeviceComputes) {
  test::TinySizes sizes = kDeep;
  sizes.layers = 12;
  DeviceJob job(sizes);
  const size_t rows = 192;  // six batches
  const SimOptions options = device(5000, uint64_t{18} << 20);
  const StageOutcome outcome = job.measure(make_sim_backend(options), rows, kLength);
  const SimTimeline& t = outcome.timeline;
  EXPECT_GT(outcome.counters.uploads, 6 * sizes.layers);  // the states were on the road
  EXPECT_LE(static_cast<double>(t.end_ns), 1.1 * static_cast<double>(slowest(outcome)))
      << "computing " << busy(t, Queue::kCompute) << " ns, uploads " << busy(t, Queue::kUpload) << " ns, downloads "
      << busy(t, Queue::kDownload) << " ns, host " << t.host_ns << " ns";
}

}  // namespace
}  // namespace bw::pipeline
