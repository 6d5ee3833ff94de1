// Speed and perplexity of the forward pass of a model directory:
//   bench_forward MODEL SEQUENCES LENGTH f32|bf16|auto [THREADS [IDS]]
// IDS: a file of 32-bit token ids, SEQUENCES * LENGTH of them or more; without it, ids are arbitrary.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "bitwright/error.h"
#include "io/file_write.h"
#include "nn/decoder.h"
#include "support/plain_linears.h"

namespace {

using namespace bw;
using backend::Tensor;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::vector<uint32_t> choose_ids(const char* file, size_t n, size_t vocabulary) {
  std::vector<uint32_t> ids(n);
  if (file == nullptr) {
    Rng rng(1);
    for (uint32_t& id : ids) id = rng.below(static_cast<uint32_t>(vocabulary));
    return ids;
  }
  const std::string data = io::read_file(file);
  if (data.size() < n * sizeof(uint32_t)) throw Error(ErrorCode::kUsage, std::string(file) + ": too few ids");
  std::memcpy(ids.data(), data.data(), n * sizeof(uint32_t));
  return ids;
}

// Mean negative log-likelihood of each row's tokens after the first, a chunk of logits at a time.
double mean_nll(const nn::Decoder& decoder, const model::ModelDir& dir, const nn::RowBatch& batch,
                std::span<const uint32_t> ids, const Tensor& h) {
  constexpr size_t kChunk = 256;
  backend::Backend& device = decoder.device();
  const Tensor norm = decoder.load_final_norm(dir), logits = device.allocate(kChunk, dir.vocab_rows());
  const Tensor nll = device.allocate(batch.tokens(), 1);
  const auto head = decoder.pack(test::plain_linears(dir, device)(dir.head()));
  backend::HostTensor next = device.stage(batch.tokens(), 1, backend::DType::kI32);
  for (size_t t = 0; t < batch.tokens(); ++t) next.as<int32_t>()[t] = static_cast<int32_t>(ids[(t + 1) % ids.size()]);
  const Tensor targets = device.upload(std::move(next));
  for (size_t first = 0; first < batch.tokens(); first += kChunk) {
    const size_t count = std::min(kChunk, batch.tokens() - first);
    const Tensor part = logits.rows_slice(0, count);
    decoder.logits(h.rows_slice(first, count), norm, head, part);
    device.enqueue(backend::op::TokenNll{part, targets.rows_slice(first, count), nll.rows_slice(first, count)});
  }
  const std::vector<float> values = device.read<float>(nll, "perplexity");
  double sum = 0;
  for (size_t t = 0; t < batch.tokens(); ++t) sum += (t + 1) % batch.length != 0 ? values[t] : 0.0f;
  return sum / static_cast<double>(batch.tokens() - batch.sequences);
}

void report(const char* what, const backend::Counters& before, const backend::Counters& after, double seconds,
            size_t tokens) {
  const double linear_seconds = after.linear_seconds - before.linear_seconds;
  std::printf("%-7s %7.2f s  %8.0f tokens/s  %7.1f GFLOP/s; linears %4.1f %% of the time at %.1f GFLOP/s\n", what,
              seconds, static_cast<double>(tokens) / seconds, (after.gemm_flops - before.gemm_flops) / seconds * 1e-9,
              100 * linear_seconds / seconds, (after.linear_flops - before.linear_flops) / linear_seconds * 1e-9);
}

void run(int argc, char** argv) {
  const model::ModelDir dir(argv[1]);
  const nn::RowBatch batch{std::stoul(argv[2]), std::stoul(argv[3])};
  const std::string wanted = argv[4];
  const auto precision = wanted == "f32"    ? backend::Precision::kF32
                         : wanted == "bf16" ? backend::Precision::kBF16
                                            : backend::Precision::kAuto;
  const auto device = backend::make_cpu_backend(argc > 5 ? std::stoul(argv[5]) : 0);
  const auto ids = choose_ids(argc > 6 ? argv[6] : nullptr, batch.tokens(), dir.vocab_rows());
  const nn::Decoder decoder(*device, dir.config(), batch.length, precision);
  Tensor h = decoder.embed(dir, ids);

  const nn::Decoder::LinearLoader load = test::plain_linears(dir, *device);
  double loading = 0, forward = 0;
  backend::Counters before = device->counters();
  for (size_t layer = 0; layer < dir.config().n_layers; ++layer) {
    auto begin = Clock::now();
    nn::LayerWeights weights = decoder.load_layer(dir, layer, load);
    decoder.pack(weights, false);
    loading += seconds_since(begin);
    begin = Clock::now();
    decoder.forward_layer(weights, layer, batch, h);
    forward += seconds_since(begin);
  }
  std::printf("load    %7.2f s\n", loading);
  report("layers", before, device->counters(), forward, batch.tokens());
  before = device->counters();
  const auto begin = Clock::now();
  const double nll = mean_nll(decoder, dir, batch, ids, h);
  report("logits", before, device->counters(), seconds_since(begin), batch.tokens());
  std::printf("perplexity %.5f\n", std::exp(nll));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: %s MODEL SEQUENCES LENGTH f32|bf16|auto [THREADS [IDS]]\n", argv[0]);
    return 2;
  }
  try {
    run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
