// The operations of a device at shapes of real models, and plain oneDNN products of the same shapes beside them. The
// operations are made by the cases of the conformance tests (tests/backend/cases).
//
//   bench_ops [--device=cpu] --benchmark_filter=linear ...
//
// The CPU works with one thread. On devices that do not run at once, the time includes the wait.
#include <cstring>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <omp.h>

#include "backend/cases/all.h"
#include "backend/cases/place.h"
#include "backend/devices.h"
#include "plain_matmul.h"

namespace {

using namespace bw::backend;
using namespace bw::backend::conformance;

std::string& device_name() {
  static std::string name = "cpu";
  return name;
}

Backend& device() {
  static const auto made = make_backend({.name = device_name(), .threads = 1});
  return *made;
}

size_t arg(const benchmark::State& state, size_t i) { return static_cast<size_t>(state.range(i)); }
Precision precision_of(const benchmark::State& state, size_t i) {
  return state.range(i) ? Precision::kBF16 : Precision::kF32;
}

void set_flops(benchmark::State& state, double flops) {
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

void finish() {
  if (!device().runs_at_once()) device().wait_all("benchmark");
}

// Times the operation of `c`, its operands without gaps. Rates: FLOP/s of products, else elements of the first operand;
// and the bytes of all operands.
void time_case(benchmark::State& state, Case c) {
  size_t bytes = 0;
  for (Operand& o : c.operands) {
    o.before = o.after = 0;
    bytes += o.bytes.size();
  }
  const Placed placed(device(), c.operands);
  const Op op = c.op(device(), placed.tensors());
  device().enqueue(op);  // fresh pages are not the operation's cost: the pipeline uses them again
  device().wait_all("benchmark");
  for (auto _ : state) {
    device().enqueue(op);
    finish();
  }
  const Work work = work_of(op);
  if (work.flops > 0) {
    set_flops(state, work.flops);
  } else {
    state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(c.operands[0].size()));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

// Movement ----------------------------------------------------------------------------------------------------------

void fill(benchmark::State& state) { time_case(state, fill_case(unset(arg(state, 0), arg(state, 1)), 1.0f)); }

// The last argument: 0 float, 1 bfloat16, 2 half.
void copy(benchmark::State& state) {
  const DType to = std::array{DType::kF32, DType::kBF16, DType::kF16}.at(arg(state, 2));
  time_case(state, copy_case(random_operand(arg(state, 0), arg(state, 1), 1), to));
}

void transpose_in_order(benchmark::State& state) {
  time_case(state, transpose_case(arg(state, 0), arg(state, 1), arg(state, 0)));
}

// Arguments: in, out, 1 for bfloat16.
void prepare_weight(benchmark::State& state) {
  const size_t k = arg(state, 0), n = arg(state, 1);
  const Operands operands = {random_operand(n, k, 1)};
  const Placed placed(device(), operands);
  for (auto _ : state) {
    device().pack_weight(placed.tensors()[0], precision_of(state, 2));
    finish();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(operands[0].bytes.size()));
}

// Matrix products ---------------------------------------------------------------------------------------------------

// Arguments: tokens, in, out, 1 for bfloat16.
void linear(benchmark::State& state) {
  const ProductShape shape{arg(state, 0), arg(state, 2), arg(state, 1)};
  time_case(state, linear_case(shape, precision_of(state, 3), false, false));
}

void plain_matmul(benchmark::State& state) {
  omp_set_num_threads(1);
  const size_t m = arg(state, 0), k = arg(state, 1), n = arg(state, 2);
  bw::bench::PlainMatmul product(m, n, k, state.range(3) != 0);
  for (auto _ : state) product.run();
  set_flops(state, 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
}

void product_shapes(benchmark::internal::Benchmark* b) {
  for (const int bf16 : {0, 1}) {
    for (const auto& [in, out] : {std::pair{576, 576}, {576, 1536}, {1536, 576}, {896, 4864}, {4864, 896}}) {
      for (const int tokens : {1, 8, 64, 1024, 4096}) b->Args({tokens, in, out, bf16});
    }
  }
}

// Arguments: tokens, width, 1 for bfloat16, 1 for weights.
void gram(benchmark::State& state) {
  time_case(state, gram_case(arg(state, 0), arg(state, 1), state.range(3) != 0, precision_of(state, 2)));
}

void gemm(benchmark::State& state) {
  const ProductShape shape{arg(state, 0), arg(state, 1), arg(state, 2)};
  time_case(state, gemm_case(shape, false, false, {1.0f, 0.0f}, precision_of(state, 3)));
}

void symmetrize(benchmark::State& state) { time_case(state, symmetrize_case(arg(state, 0))); }

void dot(benchmark::State& state) { time_case(state, dot_case(arg(state, 0), arg(state, 1))); }

void inverse_factor(benchmark::State& state) {
  time_case(state, factor_case("smooth", smooth_hessian(arg(state, 0), 1), arg(state, 0), 0.01f, {.ordered = false}));
}

// Attention ---------------------------------------------------------------------------------------------------------

// Arguments: sequences, length, heads, KV heads, head_dim, window.
void attention(benchmark::State& state) {
  time_case(state, attention_case({arg(state, 0), arg(state, 1), arg(state, 2), arg(state, 3), arg(state, 4),
                                   arg(state, 5), 0.0f}));
}

void attention_cached(benchmark::State& state) {
  time_case(state, attention_cached_case({arg(state, 0), arg(state, 1), 14, 2, 64, 0, 0.0f}, 0));
}

// Elements and rows: (rows, cols) ------------------------------------------------------------------------------------

void rms_norm(benchmark::State& state) {
  time_case(state, rms_norm_case(arg(state, 0), arg(state, 1), 1, InPlace::kNo));
}

void add(benchmark::State& state) { time_case(state, add_case(arg(state, 0), arg(state, 1))); }

void scale(benchmark::State& state) { time_case(state, scale_case(arg(state, 0), arg(state, 1), 1.0f)); }

void gated_activation(benchmark::State& state) {
  const auto kind = static_cast<ActivationKind>(state.range(2));
  time_case(state, activation_case(arg(state, 0), arg(state, 1), kind, InPlace::kNo));
}

void softcap(benchmark::State& state) { time_case(state, softcap_case(arg(state, 0), arg(state, 1))); }

void rope(benchmark::State& state) { time_case(state, rope_case(arg(state, 0), arg(state, 1) / 64, 64, 512)); }

void row_squared_norms(benchmark::State& state) {
  time_case(state, row_norms_case(arg(state, 0), arg(state, 1), state.range(2) != 0));
}

void row_ratios(benchmark::State& state) { time_case(state, row_ratios_case(arg(state, 0), {true, true})); }

void token_nll(benchmark::State& state) {
  const size_t rows = arg(state, 0), n = arg(state, 1);
  time_case(state, token_nll_case(random_floats(rows * n, 1, 20.0f), rows, n));
}

void compare_logits(benchmark::State& state) {
  time_case(state, noisy_compare_case(arg(state, 0), arg(state, 1), 0.1f));
}

// Quantization ------------------------------------------------------------------------------------------------------

// All widths and group sizes of (in, out).
void price_groups(benchmark::State& state) {
  const std::vector<int> widths(std::begin(kWidthsInBits), std::end(kWidthsInBits));
  time_case(state, price_case(random_weights(arg(state, 0), arg(state, 1), 1, 0.02f), widths, {32, 64, 128}));
}

// Arguments: rows of the group, columns, bits.
void group_scale(benchmark::State& state) {
  const Operand rows = random_weights(arg(state, 0), arg(state, 1), 1, 0.02f);
  time_case(state, group_scale_case(rows, static_cast<int>(state.range(2))));
}

// Arguments: rows of the group, rows after it, columns, bits.
void round_group(benchmark::State& state) {
  const size_t n = arg(state, 0);
  const auto bits = static_cast<int>(state.range(3));
  const Operand panel = random_weights(n + arg(state, 1), arg(state, 2), 1, 0.02f);
  time_case(state, round_group_case(panel, n, bits, usual_scale_max(0.02f, bits)));
}

// Arguments: in, out, bits.
void dequantize(benchmark::State& state) {
  const size_t in = arg(state, 0), out = arg(state, 1);
  time_case(state, dequantize_case(out, out, in, in, static_cast<int>(state.range(2)), 128));
}

void pack_bits(benchmark::State& state) {
  time_case(state, pack_bits_case(arg(state, 0), arg(state, 1), static_cast<int>(state.range(2)), true));
}

void unpack_bits(benchmark::State& state) {
  time_case(state, pack_bits_case(arg(state, 0), arg(state, 1), static_cast<int>(state.range(2)), false));
}

void pack_nibbles(benchmark::State& state) { time_case(state, pack_nibbles_case(arg(state, 0), arg(state, 1), true)); }

void unpack_nibbles(benchmark::State& state) {
  time_case(state, pack_nibbles_case(arg(state, 0), arg(state, 1), false));
}

void weighted_difference(benchmark::State& state) {
  time_case(state, weighted_difference_case(arg(state, 0), arg(state, 1), InPlace::kNo));
}

// Arguments: rows of the group, columns, bits.
void refine_group(benchmark::State& state) {
  time_case(state, refine_group_case({arg(state, 0), arg(state, 1), static_cast<int>(state.range(2))}, 1));
}

void rms_norm_gradient(benchmark::State& state) {
  time_case(state, rms_norm_gradient_case({arg(state, 0), arg(state, 1), 1, true, false}));
}

void gated_activation_gradient(benchmark::State& state) {
  const auto kind = state.range(2) ? ActivationKind::kGeluTanh : ActivationKind::kSilu;
  time_case(state, activation_gradient_case(arg(state, 0), arg(state, 1), kind, {}));
}

// Arguments as of attention.
void attention_gradient(benchmark::State& state) {
  time_case(state, attention_gradient_case({arg(state, 0), arg(state, 1), arg(state, 2), arg(state, 3), arg(state, 4),
                                            arg(state, 5), 0.0f}));
}

void sampled_gradient(benchmark::State& state) {
  const size_t rows = arg(state, 0), n = arg(state, 1);
  time_case(state, sampled_gradient_case(random_floats(rows * n, 1, 20.0f), std::vector<float>(rows, 0.5f), 0.0f));
}

void count_differences(benchmark::State& state) { time_case(state, count_case(arg(state, 0), arg(state, 1), 1000000)); }

// Registration ------------------------------------------------------------------------------------------------------

// In real time on devices that do not run at once: the host's thread sleeps then.
benchmark::internal::Benchmark* add_benchmark(const char* name, void (*f)(benchmark::State&)) {
  benchmark::internal::Benchmark* b = benchmark::RegisterBenchmark(name, f);
  return device().runs_at_once() ? b : b->UseRealTime();
}

void add_benchmarks() {
  add_benchmark("fill", fill)->Args({4096, 4096});
  add_benchmark("copy", copy)->Args({2048, 896, 0})->Args({2048, 896, 1})->Args({2048, 896, 2});
  add_benchmark("transpose_in_order", transpose_in_order)->Args({4864, 896})->Args({896, 4864});
  add_benchmark("prepare_weight", prepare_weight)->Args({896, 4864, 0})->Args({896, 4864, 1});
  add_benchmark("linear", linear)->Apply(product_shapes);
  add_benchmark("plain_matmul", plain_matmul)->Apply(product_shapes);
  add_benchmark("gram", gram)->ArgsProduct({{4096}, {576, 1536, 4864}, {0, 1}, {0, 1}});
  add_benchmark("gemm", gemm)->ArgsProduct({{1024}, {1024}, {128, 1024}, {0, 1}});
  add_benchmark("symmetrize", symmetrize)->Arg(896)->Arg(4864);
  add_benchmark("dot", dot)->Args({896, 4864});
  add_benchmark("inverse_factor", inverse_factor)->Arg(576)->Arg(1536)->Arg(4864)->Unit(benchmark::kMillisecond);
  add_benchmark("attention", attention)
      ->Args({4, 512, 9, 3, 64, 0})
      ->Args({1, 2048, 9, 3, 64, 0})
      ->Args({1, 2048, 14, 2, 64, 0})
      ->Args({1, 2048, 4, 1, 256, 512});
  add_benchmark("attention_cached", attention_cached)->Args({1, 1024})->Args({64, 1024});
  add_benchmark("rms_norm", rms_norm)->Args({2048, 576});
  add_benchmark("add", add)->Args({2048, 576});
  add_benchmark("scale", scale)->Args({2048, 576});
  add_benchmark("gated_activation", gated_activation)->Args({1024, 1536, 0})->Args({1024, 1536, 1});
  add_benchmark("softcap", softcap)->Args({16, 49152});
  add_benchmark("rope", rope)->Args({2048, 576});
  add_benchmark("row_squared_norms", row_squared_norms)->Args({2048, 576, 0})->Args({2048, 576, 1});
  add_benchmark("row_ratios", row_ratios)->Arg(4096);
  add_benchmark("weighted_difference", weighted_difference)->Args({2048, 576});
  add_benchmark("rms_norm_gradient", rms_norm_gradient)->Args({2048, 576});
  add_benchmark("gated_activation_gradient", gated_activation_gradient)->Args({1024, 1536, 0})->Args({1024, 1536, 1});
  add_benchmark("attention_gradient", attention_gradient)->Args({4, 512, 9, 3, 64, 0})->Args({1, 2048, 14, 2, 64, 0});
  add_benchmark("sampled_gradient", sampled_gradient)->Args({16, 49152});
  add_benchmark("token_nll", token_nll)->Args({16, 49152});
  add_benchmark("compare_logits", compare_logits)->Args({16, 49152});
  add_benchmark("price_groups", price_groups)->Args({896, 4864})->Unit(benchmark::kMillisecond);
  add_benchmark("group_scale", group_scale)->Args({128, 4864, 4})->Args({32, 4864, 4});
  add_benchmark("round_group", round_group)->Args({128, 0, 4864, 4})->Args({32, 96, 4864, 4});
  add_benchmark("refine_group", refine_group)->Args({128, 4864, 4})->Args({32, 4864, 3});
  add_benchmark("dequantize", dequantize)->Args({896, 4864, 4});
  add_benchmark("pack_bits", pack_bits)->Args({896, 4864, 3})->Args({896, 4864, 4});
  add_benchmark("unpack_bits", unpack_bits)->Args({896, 4864, 3})->Args({896, 4864, 4});
  add_benchmark("pack_nibbles", pack_nibbles)->Args({28, 4864});
  add_benchmark("unpack_nibbles", unpack_nibbles)->Args({28, 4864});
  add_benchmark("count_differences", count_differences)->Args({896, 4864});
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);  // takes its own flags away
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--device=", 9) != 0) {
      fmt::print(stderr, "bench_ops: unknown argument {}\n", argv[i]);
      return 2;
    }
    device_name() = argv[i] + 9;
  }
  try {
    add_benchmarks();
  } catch (const bw::Error& e) {
    fmt::print(stderr, "bench_ops: {}\n", e.what());
    return 2;
  }
  benchmark::RunSpecifiedBenchmarks();
}
