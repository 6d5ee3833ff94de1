#include "pipeline/needs.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

#include "calib/held_out.h"
#include "pipeline/documents.h"
#include "pipeline/layer_trace.h"
#include "pipeline/session.h"
#include "quant/held_out.h"

namespace bw::pipeline {
namespace {

constexpr uint64_t kFloat = sizeof(float);
constexpr uint64_t kProgramBytes = uint64_t{32} << 20;  // code, tokenizer apart
constexpr uint64_t kTokenBytes = 512;                   // of the tokenizer, for each token it knows
constexpr uint64_t kIdleBytes = uint64_t{256} << 20;    // most that the cpu device keeps of what it was given back

// The sizes of a model that its needs are made of.
struct Sizes {
  Sizes(const model::ModelConfig& c, size_t vocab_rows)
      : hidden(c.hidden),
        intermediate(c.intermediate),
        queries(uint64_t{c.n_heads} * c.head_dim),
        keys(uint64_t{c.n_kv_heads} * c.head_dim),
        widest(std::max({hidden, intermediate, queries})),
        layers(c.n_layers),
        layer(weights_of_layers(c) / c.n_layers),
        linear(hidden * std::max(intermediate, queries)),
        head(uint64_t{vocab_rows} * hidden),
        vocabulary(vocab_rows) {}
  uint64_t hidden, intermediate, queries, keys;
  uint64_t widest;  // input of a linear
  uint64_t layers;
  uint64_t layer, linear, head;  // weights: of one layer, of its largest linear, of the head
  uint64_t vocabulary;
};

// Tokens whose states are in memory, batches on their way from and to the disk included.
uint64_t in_memory(const JobShape& job) {
  const uint64_t tokens = uint64_t{job.rows} * job.length;
  return job.states_on_disk ? std::min<uint64_t>(tokens, 3 * std::max<uint64_t>(kBatchTokens, job.length)) : tokens;
}

// States of the rows that are held out.
uint64_t traced_bytes(const Sizes& s, const JobShape& job) {
  const calib::HeldOutShape shape = calib::held_out_shape(job.rows, job.length);
  return kFloat * (2 * shape.count + LayerTrace::kBranches) * shape.length * s.hidden;
}

// Where memory is the host's: live memory of each stage.
std::vector<StageNeed> stages_of(const Sizes& s, const JobShape& job) {
  const uint64_t tokens = uint64_t{job.rows} * job.length, packed = job.packs_bf16 ? 2 : kFloat;
  const uint64_t batch_tokens = std::min<uint64_t>(tokens, std::max<uint64_t>(kBatchTokens, job.length));
  const uint64_t backward_tokens = std::min<uint64_t>(tokens, std::max<uint64_t>(kBackwardTokens, job.length));
  const uint64_t batch = 3 * kFloat * batch_tokens * 2 * s.widest;
  const uint64_t there = in_memory(job);
  const uint64_t states = kFloat * there * s.hidden, gains = kFloat * tokens * model::kLinearsPerLayer * s.layers;
  const uint64_t logits = kFloat * kLogitTokens * s.vocabulary;
  std::vector<StageNeed> stages;
  if (job.self_calibrated) {
    const uint64_t weights = packed * (s.layers * s.layer + s.head);
    const uint64_t rows = job.rows + calib::held_out_shape(job.rows, job.length).count;
    const uint64_t cache = 2 * kFloat * s.layers * rows * job.length * s.keys;
    stages.push_back({"self-calibration", weights + cache + kFloat * std::max(s.head, s.layer) +
                                              kFloat * rows * (s.vocabulary + 2 * s.widest)});
  }
  const uint64_t inputs = sizeof(uint16_t) * there * s.hidden;  // of a layer, kept as bfloat16
  stages.push_back({"gradients: forward", states + 2 * inputs + (kFloat + packed) * s.layer + batch});
  stages.push_back({"gradients: head", states + kFloat * batch_tokens * 2 * s.hidden + kFloat * s.hidden * s.hidden +
                                           logits + std::max(kFloat + 2 * packed, 2 * kFloat) * s.head});
  const uint64_t squares = 5 * s.hidden * s.hidden + s.queries * s.queries + s.intermediate * s.intermediate;
  const uint64_t held_out = 2 * std::min<uint64_t>(tokens / quant::kHeldOutShare, kHeldOutTokens) *
                            (2 * s.hidden + s.queries + s.intermediate + 2 * s.widest);
  stages.push_back({"gradients: backward", states + inputs + gains + (kFloat + 2 * packed) * s.layer +
                                               kFloat * s.linear + kFloat * (squares + 3 * s.widest * s.widest) +
                                               kFloat * held_out +
                                               kFloat * backward_tokens * (8 * s.hidden + 6 * s.intermediate)});
  if (!job.quantizes) return stages;
  const uint64_t streams = 2;  // of the quantized model and of the original
  const uint64_t traced = traced_bytes(s, job);
  stages.push_back({"quantize: layers", streams * kFloat * there * (s.hidden + s.widest) + gains +
                                            (kFloat + streams * packed) * s.layer + 3 * kFloat * s.linear +
                                            7 * kFloat * s.widest * s.widest + traced + batch});
  // The weights as they are and in the order of rounding; a byte for each code, and packed to be compared.
  stages.push_back({"quantize: head", streams * states + gains + 2 * (kFloat + 1) * s.head + traced + batch});
  return stages;
}

// Beside a device with memory of its own: what waits to be copied to it or has come from it.
std::vector<StageNeed> host_stages_of(const Sizes& s, const JobShape& job, bool states_at_home) {
  const uint64_t tokens = uint64_t{job.rows} * job.length, streams = job.quantizes ? 2 : 1;
  const uint64_t states = states_at_home ? streams * kFloat * in_memory(job) * (s.hidden + s.widest) : 0;
  const uint64_t gains = kFloat * tokens * model::kLinearsPerLayer * s.layers,
                 inputs = 2 * sizeof(uint16_t) * in_memory(job) * s.hidden;
  const uint64_t weights = std::max(2 * kFloat * s.layer, 2 * kFloat * s.head);
  return {{"all stages", states + gains + inputs + weights}};
}

// The number in a file of one; 0 for anything else.
uint64_t number_in(const std::string& file) {
  std::string text;
  std::ifstream(file) >> text;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

// Limits of this process's control group and of those around it; UINT64_MAX: none.
uint64_t group_limit() {
  uint64_t limit = UINT64_MAX;
  const auto bound = [&](const std::string& file) {
    if (const uint64_t bytes = number_in(file); bytes != 0) limit = std::min(limit, bytes);
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t name = line.find(':'), path = line.find(':', name + 1);
    if (path == std::string::npos || line.compare(path + 1, 1, "/") != 0) continue;
    const bool unified = path == name + 1;  // version 2
    if (!unified && line.substr(name + 1, path - name - 1) != "memory") continue;
    const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const std::string file = unified ? "/memory.max" : "/memory.limit_in_bytes";
    for (std::string group = line.substr(path + 1); group.size() > 1; group.resize(group.rfind('/'))) {
      bound(root + group + file);
    }
    bound(root + file);  // seen from inside a container, its own group is the root
  }
  return limit;
}

}  // namespace

const StageNeed& JobNeeds::peak() const {
  return *std::max_element(stages.begin(), stages.end(),
                           [](const StageNeed& a, const StageNeed& b) { return a.memory_bytes < b.memory_bytes; });
}

JobNeeds needs_of(const model::ModelConfig& config, size_t vocab_rows, const JobShape& job) {
  const Sizes s(config, vocab_rows);
  const uint64_t tokens = uint64_t{job.rows} * job.length;
  JobNeeds needs;
  if (!job.on_host) {
    needs.device_bytes = device_bytes_needed(config, (job.quantizes ? 2 : 1) * tokens);
  }
  const bool states_fit = job.device_limit == 0 || needs.device_bytes <= job.device_limit;
  needs.stages = job.on_host ? stages_of(s, job) : host_stages_of(s, job, !states_fit);
  for (StageNeed& stage : needs.stages) {
    if (job.on_host) stage.memory_bytes += std::min(stage.memory_bytes, kIdleBytes);
    stage.memory_bytes += kProgramBytes + kTokenBytes * s.vocabulary;
  }
  // In the work folder: a saved state, and the one that takes its place.
  const uint64_t state = 2 * kFloat * tokens * s.hidden,
                 gains = kFloat * tokens * (model::kLinearsPerLayer * s.layers + 1);
  needs.disk_bytes = sizeof(uint16_t) * tokens * s.hidden * s.layers + state + 2 * gains;
  const uint64_t streams = job.quantizes ? 2 : 1;
  const uint64_t scratch =
      job.states_on_disk ? streams * kFloat * tokens * (2 * s.hidden + s.queries + s.intermediate) : 0;
  uint64_t finished = 0;
  const uint64_t documents = bytes_of_documents(model::kLinearsPerLayer * config.n_layers + 1);
  for (const uint64_t model_bytes : job.output_bytes) {
    const uint64_t bytes = model_bytes + documents;
    // The layers' files stand beside the shards until these are complete.
    needs.disk_bytes = std::max(needs.disk_bytes, gains + 2 * (state + traced_bytes(s, job)) + finished + 2 * bytes);
    finished += bytes;
  }
  needs.disk_bytes += scratch;
  return needs;
}

MemoryThere memory_there() {
  const auto pages = static_cast<uint64_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  MemoryThere there{pages * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)), {}};
  const auto bound = [&](uint64_t bytes, const char* limit) {
    if (bytes < there.bytes) there = {bytes, limit};
  };
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    // Code, stacks and mapped files have their part of it already.
    const uint64_t taken = number_in("/proc/self/statm") * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
    bound(limit.rlim_cur - std::min<uint64_t>(limit.rlim_cur, taken), "the limit of address space");
  }
  bound(group_limit(), "the control group");
  return there;
}

}  // namespace bw::pipeline
