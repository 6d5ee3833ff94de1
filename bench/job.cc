// One whole job by stages, beside plain oneDNN products of the same shapes in the same process:
//   bench_job MODEL OUT TEXT ROWS LENGTH BPW f32|bf16|auto THREADS
// Prints, for each stage: wall seconds, the share of them in matrix products, the products' rate, and for the forward
// and Hessian stages the rate of one plain oneDNN call per product with as many threads. Then peak memory beside what
// docs/performance.md says it should be. OUT must not exist.
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <omp.h>
#include <sys/resource.h>

#include "bitwright/bitwright.h"
#include "model/model_dir.h"
#include "plain_matmul.h"

namespace {

using namespace bw;
using Clock = std::chrono::steady_clock;

constexpr size_t kTokens = 4096;  // rows of a product: a batch of the pipeline

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct Rate {
  double flops = 0, seconds = 0;
  double gflops() const { return seconds > 0 ? flops / seconds / 1e9 : 0; }
};

// The best of some runs.
Rate plain_product(size_t m, size_t n, size_t k, bool bf16) {
  bench::PlainMatmul product(m, n, k, bf16);
  constexpr int kRuns = 8;
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = Clock::now();
    product.run();
    best = std::min(best, seconds_since(begin));
  }
  return {2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k), best};
}

void add(Rate& sum, const Rate& r) {
  sum.flops += r.flops;
  sum.seconds += r.seconds;
}

// Of the products of one layer: its linears, and the Hessians of the inputs they read.
Rate plain_forward(const model::ModelDir& dir, bool bf16) {
  Rate sum;
  for (size_t k = 0; k < model::kLinearsPerLayer; ++k) {
    const model::LinearInfo l = dir.linear(0, static_cast<model::LinearKind>(k));
    add(sum, plain_product(kTokens, l.out, l.in, bf16));
  }
  return sum;
}

Rate plain_hessians(const model::ModelDir& dir, bool bf16) {
  using model::LinearKind;
  Rate sum;
  for (const LinearKind kind : {LinearKind::kQ, LinearKind::kO, LinearKind::kGate, LinearKind::kDown}) {
    const size_t in = dir.linear(0, kind).in;
    add(sum, plain_product(in, in, kTokens, bf16));
  }
  return sum;
}

double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1e3;
}

// The parts of peak memory while a layer is quantized, in MB; see docs/performance.md.
void print_memory(const model::ModelDir& dir, size_t tokens, double measured) {
  const model::ModelConfig& c = dir.config();
  double layer = 0, widest = 0;
  for (size_t k = 0; k < model::kLinearsPerLayer; ++k) {
    const model::LinearInfo l = dir.linear(0, static_cast<model::LinearKind>(k));
    layer += 4e-6 * static_cast<double>(l.in) * static_cast<double>(l.out);
    widest = std::max(widest, static_cast<double>(l.in));
  }
  const double head = 4e-6 * static_cast<double>(dir.vocab_rows()) * static_cast<double>(c.hidden);
  const double states = 4e-6 * static_cast<double>(tokens) * (static_cast<double>(c.hidden) + widest);
  const double hessians = 4 * 4e-6 * widest * widest;
  std::printf(
      "\npeak memory %.0f MB; layer in float %.0f, Hessian and factor %.0f, states %.0f, head in float %.0f, tensor "
      "files "
      "(mapped) %.0f MB\n",
      measured, layer, hessians, states, head, static_cast<double>(dir.tensors().file_bytes()) / 1e6);
}

void run(char** argv) {
  const std::string arithmetic = argv[7];
  QuantizeOptions o;
  o.model = argv[1];
  o.output = argv[2];
  o.calibration = {{argv[3]}, std::stoul(argv[4]), std::stoul(argv[5]), 1};
  o.bpw = {std::stod(argv[6])};
  o.engine.arithmetic = arithmetic == "f32"    ? Arithmetic::kF32
                        : arithmetic == "bf16" ? Arithmetic::kBF16
                                               : Arithmetic::kAuto;
  o.engine.threads = std::stoul(argv[8]);
  const QuantizeResult result = quantize(o).at(0);
  const double peak = peak_megabytes();

  const model::ModelDir dir(o.model);
  const bool bf16 = arithmetic != "f32";
  omp_set_num_threads(static_cast<int>(o.engine.threads));
  const double forward = plain_forward(dir, bf16).gflops(), hessians = plain_hessians(dir, bf16).gflops();
  std::printf("%-28s%10s%14s%10s%14s%8s\n", "stage", "seconds", "in products", "GFLOP/s", "plain oneDNN", "ratio");
  for (const StageTime& t : result.stages) {
    const double rate = t.product_seconds > 0 ? t.product_flops / t.product_seconds / 1e9 : 0;
    const bool is_forward = t.stage.ends_with("forward"), is_hessian = t.stage.ends_with("Hessians");
    std::printf("%-28s%10.2f%12.0f %%%10.0f", t.stage.c_str(), t.seconds,
                100 * t.product_seconds / std::max(t.seconds, 1e-9), rate);
    if (is_forward || is_hessian) {
      const double plain = is_forward ? forward : hessians;
      std::printf("%14.0f%7.0f%%", plain, 100 * rate / plain);
    }
    std::printf("\n");
  }
  print_memory(dir, o.calibration.rows * o.calibration.length, peak);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 9) {
    std::fprintf(stderr, "usage: bench_job MODEL OUT TEXT ROWS LENGTH BPW f32|bf16|auto THREADS\n");
    return 2;
  }
  try {
    run(argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
