// The operations of the CPU backend at shapes of real models, and plain oneDNN products of the same shapes beside them.
// All run on one thread: `bench_ops --benchmark_filter=Linear` etc.; the column FLOP/s is to be compared.
#include <vector>

#include <benchmark/benchmark.h>
#include <omp.h>

#include "backend/backend.h"
#include "base/rng.h"
#include "plain_matmul.h"

namespace {

using namespace bw;
using backend::Precision;
using backend::Tensor;

backend::Backend& device() {
  static const auto cpu = backend::make_cpu_backend(1);
  return *cpu;
}

std::vector<float> random_floats(size_t n) {
  Rng rng(n);
  std::vector<float> v(n);
  for (float& x : v) x = 2 * rng.next_float() - 1;
  return v;
}

Tensor random_tensor(size_t rows, size_t cols) {
  const Tensor t = device().allocate(rows, cols);
  device().upload(t, random_floats(rows * cols));
  return t;
}

size_t arg(const benchmark::State& state, size_t i) { return static_cast<size_t>(state.range(i)); }

void set_flops(benchmark::State& state, double flops) {
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}
void set_product(benchmark::State& state, size_t m, size_t n, size_t k) {
  set_flops(state, 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
}

// Arguments: tokens, in, out, 1 for bfloat16.
Precision precision_of(const benchmark::State& state, size_t i) {
  return state.range(i) ? Precision::kBF16 : Precision::kF32;
}

void linear(benchmark::State& state) {
  const size_t m = arg(state, 0), k = arg(state, 1), n = arg(state, 2);
  const auto weight = device().prepare_weight(random_floats(n * k), n, k, precision_of(state, 3));
  const Tensor x = random_tensor(m, k), y = device().allocate(m, n);
  device().linear(x, *weight, nullptr, y);  // fresh pages are not the product's cost: the pipeline uses them again
  for (auto _ : state) device().linear(x, *weight, nullptr, y);
  set_product(state, m, n, k);
}

void plain_matmul(benchmark::State& state) {
  omp_set_num_threads(1);
  const size_t m = arg(state, 0), k = arg(state, 1), n = arg(state, 2);
  bench::PlainMatmul product(m, n, k, state.range(3) != 0);
  for (auto _ : state) product.run();
  set_product(state, m, n, k);
}

void product_shapes(benchmark::internal::Benchmark* b) {
  for (const int bf16 : {0, 1}) {
    for (const auto& [in, out] : {std::pair{576, 576}, {576, 1536}, {1536, 576}, {896, 4864}, {4864, 896}}) {
      for (const int tokens : {1, 8, 64, 1024, 4096}) b->Args({tokens, in, out, bf16});
    }
  }
}
BENCHMARK(linear)->Apply(product_shapes);
BENCHMARK(plain_matmul)->Apply(product_shapes);

void prepare_weight(benchmark::State& state) {
  const size_t k = arg(state, 0), n = arg(state, 1);
  const auto w = random_floats(n * k);
  for (auto _ : state) device().prepare_weight(w, n, k, precision_of(state, 2));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(n * k * sizeof(float)));
}
BENCHMARK(prepare_weight)->Args({896, 4864, 0})->Args({896, 4864, 1});

void gram(benchmark::State& state) {
  const size_t tokens = arg(state, 0), n = arg(state, 1);
  const Tensor x = random_tensor(tokens, n), w = random_tensor(tokens, 1), h = device().allocate(n, n);
  device().fill(h, 0.0f);
  device().accumulate_gram(x, nullptr, h, precision_of(state, 2));
  for (auto _ : state) device().accumulate_gram(x, state.range(3) ? &w : nullptr, h, precision_of(state, 2));
  set_flops(state, static_cast<double>(tokens * n) * static_cast<double>(n + 1));
}
BENCHMARK(gram)->ArgsProduct({{4096}, {576, 1536, 4864}, {0, 1}, {0, 1}});

void gemm(benchmark::State& state) {
  const size_t m = arg(state, 0), n = arg(state, 1), k = arg(state, 2);
  const Tensor a = random_tensor(m, k), b = random_tensor(k, n), c = device().allocate(m, n);
  for (auto _ : state) device().gemm(a, false, b, false, c, 1.0f, 0.0f, precision_of(state, 3));
  set_product(state, m, n, k);
}
BENCHMARK(gemm)->ArgsProduct({{1024}, {1024}, {128, 1024}, {0, 1}});

// Arguments: sequences, length, heads, KV heads, head_dim, window.
void attention(benchmark::State& state) {
  const size_t sequences = arg(state, 0), length = arg(state, 1), tokens = sequences * length;
  const backend::AttentionShape shape{arg(state, 2), arg(state, 3), arg(state, 4), 0.125f, 0.0f, arg(state, 5)};
  const Tensor q = random_tensor(tokens, shape.n_heads * shape.head_dim), out = device().allocate(tokens, q.cols);
  const Tensor k = random_tensor(tokens, shape.n_kv_heads * shape.head_dim), v = random_tensor(tokens, k.cols);
  device().reset_counters();
  for (auto _ : state) device().attention(q, k, v, sequences, shape, out);
  set_flops(state, device().counters().gemm_flops / static_cast<double>(device().counters().launches));
}
BENCHMARK(attention)
    ->Args({4, 512, 9, 3, 64, 0})
    ->Args({1, 2048, 9, 3, 64, 0})
    ->Args({1, 2048, 14, 2, 64, 0})
    ->Args({1, 2048, 4, 1, 256, 512});

void attention_cached(benchmark::State& state) {
  const size_t sequences = arg(state, 0), length = arg(state, 1);
  const backend::AttentionShape shape{14, 2, 64, 0.125f, 0.0f, 0};
  const Tensor q = random_tensor(sequences, 14 * 64), out = device().allocate(sequences, 14 * 64);
  const Tensor k = random_tensor(sequences * length, 2 * 64), v = random_tensor(sequences * length, 2 * 64);
  for (auto _ : state) device().attention_cached(q, k, v, length, length, shape, out);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(2 * k.rows * k.cols * sizeof(float)));
}
BENCHMARK(attention_cached)->Args({1, 1024})->Args({64, 1024});

// Row-wise operations, (tokens, cols): elements a second.
template <typename F>
void row_wise(benchmark::State& state, const F& op) {
  for (auto _ : state) op();
  state.SetItemsProcessed(state.iterations() * state.range(0) * state.range(1));
}

void rms_norm(benchmark::State& state) {
  const Tensor x = random_tensor(arg(state, 0), arg(state, 1)), y = random_tensor(x.rows, x.cols),
               w = random_tensor(1, x.cols);
  row_wise(state, [&] { device().rms_norm(x, w, 1e-6f, y); });
}
BENCHMARK(rms_norm)->Args({2048, 576});

void gated_activation(benchmark::State& state) {
  const Tensor x = random_tensor(arg(state, 0), arg(state, 1)), y = random_tensor(x.rows, x.cols);
  row_wise(state, [&] { device().gated_activation(x, y, static_cast<backend::ActivationKind>(state.range(2)), y); });
}
BENCHMARK(gated_activation)->Args({1024, 1536, 0})->Args({1024, 1536, 1});

void rope(benchmark::State& state) {
  const Tensor x = random_tensor(arg(state, 0), arg(state, 1)), table = random_tensor(1, 64);
  const Tensor positions = device().allocate(x.rows, 1, backend::DType::kI32);
  device().upload(positions, std::vector<int32_t>(x.rows, 0));
  row_wise(state, [&] { device().rope(x, 64, positions, table); });
}
BENCHMARK(rope)->Args({2048, 576});

void token_nll(benchmark::State& state) {
  const Tensor x = random_tensor(arg(state, 0), arg(state, 1)), out = device().allocate(x.rows, 1);
  const Tensor targets = device().allocate(x.rows, 1, backend::DType::kI32);
  device().upload(targets, std::vector<int32_t>(x.rows, 0));
  row_wise(state, [&] { device().token_nll(x, targets, out); });
}
BENCHMARK(token_nll)->Args({16, 49152});

void compare_logits(benchmark::State& state) {
  const Tensor x = random_tensor(arg(state, 0), arg(state, 1)), y = random_tensor(x.rows, x.cols),
               out = device().allocate(x.rows, 4);
  const Tensor targets = device().allocate(x.rows, 1, backend::DType::kI32);
  device().upload(targets, std::vector<int32_t>(x.rows, 0));
  row_wise(state, [&] { device().compare_logits(x, y, targets, out); });
}
BENCHMARK(compare_logits)->Args({16, 49152});

}  // namespace

BENCHMARK_MAIN();
