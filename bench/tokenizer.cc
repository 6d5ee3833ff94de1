// Loading a tokenizer, and encoding and decoding a text with it, on one core:
//   bench_tokenizer TOKENIZER_JSON TEXT_FILE [--benchmark_... flags]
#include <benchmark/benchmark.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "io/file_map.h"
#include "tokenizer/tokenizer.h"

namespace {

using bw::tokenizer::Tokenizer;

std::string read(const char* path) {
  const bw::io::FileMap file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void count_bytes(benchmark::State& state, size_t n) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(n));
}

void run(const std::string& json, const std::string& text) {
  const Tokenizer tokenizer = Tokenizer::from_json(json, "tokenizer.json");
  const std::vector<uint32_t> ids = tokenizer.encode(text);
  benchmark::RegisterBenchmark("load", [&](benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::from_json(json, "tokenizer.json"));
    count_bytes(state, json.size());
  })->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("encode_text", [&](benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode(text));
    count_bytes(state, text.size());
  })->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("encode_text_cold",
                               [&](benchmark::State& state) {  // no word is cached yet
                                 for (auto _ : state) {
                                   state.PauseTiming();
                                   const Tokenizer fresh = Tokenizer::from_json(json, "tokenizer.json");
                                   state.ResumeTiming();
                                   benchmark::DoNotOptimize(fresh.encode(text));
                                 }
                                 count_bytes(state, text.size());
                               })
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("decode", [&](benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids));
    count_bytes(state, text.size());
  })->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: bench_tokenizer TOKENIZER_JSON TEXT_FILE\n");
    return 2;
  }
  try {
    run(read(argv[1]), read(argv[2]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_tokenizer: %s\n", error.what());
    return 1;
  }
  return 0;
}
