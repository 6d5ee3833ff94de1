#include "nn/decoder.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <tuple>

#include <gtest/gtest.h>

#include "bitwright/error.h"
#include "nn/reference.h"
#include "support/devices.h"

namespace bw::nn {
namespace {

using backend::Tensor;

model::ModelConfig llama() {
  model::ModelConfig c;
  c.hidden = 40;
  c.intermediate = 70;
  c.n_layers = 2;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = 12;
  c.vocab_size = 50;
  c.max_position = 64;
  c.attention_scale = 0.3f;
  return c;
}

model::ModelConfig with_biases() {
  model::ModelConfig c = llama();
  c.qkv_bias = c.o_bias = c.mlp_bias = true;
  c.activation = model::Activation::kGelu;
  c.rope.scaling = model::RopeScaling::kLinear;
  c.rope.factor = 4.0;
  return c;
}

model::ModelConfig gemma() {
  model::ModelConfig c = llama();
  c.qk_norm = c.post_norms = true;
  c.activation = model::Activation::kGeluTanh;
  c.attention_softcap = 3.0f;
  c.final_softcap = 2.0f;
  c.sliding_window = 5;
  c.sliding = {true, false};
  c.rope.theta = 1e6;
  c.rope_sliding.theta = 100.0;
  return c;
}

model::ModelConfig llama3() {
  model::ModelConfig c = llama();
  c.rope = {5000.0, model::RopeScaling::kLlama3, 8.0, 1.0, 4.0, 32};
  return c;
}

model::ModelConfig dynamic() {
  model::ModelConfig c = llama();
  c.max_position = 10;
  c.rope.scaling = model::RopeScaling::kDynamic;
  c.rope.factor = 2.0;
  return c;
}

Tensor row_of(backend::Backend& device, const std::vector<float>& values) {
  if (values.empty()) return {};
  return device.upload(std::span<const float>(values), 1, values.size());
}

std::shared_ptr<const backend::Weight> pack(const Decoder& decoder, const Matrix<float>& w) {
  return decoder.pack(decoder.device().upload(w.span(), w.rows(), w.cols()));
}

LayerWeights load(const Decoder& decoder, const reference::Layer& layer) {
  backend::Backend& device = decoder.device();
  LayerWeights w;
  for (size_t i = 0; i < model::kLinearsPerLayer; ++i) {
    w.linears[i] = pack(decoder, layer.linears[i].weight);
    w.biases[i] = row_of(device, layer.linears[i].bias);
  }
  w.attention_in_norm = row_of(device, layer.norms.attention_in);
  w.attention_out_norm = row_of(device, layer.norms.attention_out);
  w.mlp_in_norm = row_of(device, layer.norms.mlp_in);
  w.mlp_out_norm = row_of(device, layer.norms.mlp_out);
  w.q_norm = row_of(device, layer.norms.q);
  w.k_norm = row_of(device, layer.norms.k);
  return w;
}

std::vector<float> random_states(size_t tokens, size_t hidden) {
  Rng rng(7);
  return reference::random(rng, tokens * hidden, 0.0f, 1.0f);
}

Tensor upload(backend::Backend& device, std::span<const float> states, size_t hidden) {
  return device.upload(states, states.size() / hidden, hidden);
}

std::vector<float> read(backend::Backend& device, const Tensor& t) { return device.read<float>(t, "test"); }

// Hidden states of all rows after all layers, and their logits.
struct Outcome {
  std::vector<float> hidden, logits;
};

Outcome expected(const reference::Model& m, const std::vector<float>& states, const RowBatch& batch) {
  Outcome out;
  for (size_t s = 0; s < batch.sequences; ++s) {
    reference::Rows h;
    for (size_t t = 0; t < batch.length; ++t) {
      const auto begin = states.begin() + static_cast<ptrdiff_t>((s * batch.length + t) * m.config.hidden);
      h.emplace_back(begin, begin + static_cast<ptrdiff_t>(m.config.hidden));
    }
    for (size_t l = 0; l < m.config.n_layers; ++l) reference::forward_layer(m, l, h);
    for (const auto& row : h) {
      const reference::Vector logits = reference::logits(m, row);
      out.hidden.insert(out.hidden.end(), row.begin(), row.end());
      out.logits.insert(out.logits.end(), logits.begin(), logits.end());
    }
  }
  return out;
}

Tensor logits_of(const Decoder& decoder, const reference::Model& m, const Tensor& h) {
  const Tensor out = decoder.device().allocate(h.rows, m.config.vocab_size);
  decoder.logits(h, row_of(decoder.device(), m.final_norm), pack(decoder, m.head), out);
  return out;
}

Outcome forward(const Decoder& decoder, const reference::Model& m, const std::vector<float>& states,
                const RowBatch& batch) {
  backend::Backend& device = decoder.device();
  Tensor h = upload(device, states, m.config.hidden);
  for (size_t l = 0; l < m.config.n_layers; ++l) decoder.forward_layer(load(decoder, m.layers[l]), l, batch, h);
  return {read(device, h), read(device, logits_of(decoder, m, h))};
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, float tolerance) {
  ASSERT_EQ(got.size(), want.size());
  float worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_FALSE(std::isnan(got[i]));
    worst = std::max(worst, std::abs(got[i] - want[i]));
  }
  EXPECT_LT(worst, tolerance);
}

using ConfigAndDevice = std::tuple<model::ModelConfig (*)(), const char*>;

class DecoderOf : public testing::TestWithParam<ConfigAndDevice> {
 protected:
  const model::ModelConfig config_ = std::get<0>(GetParam())();
  const std::unique_ptr<backend::Backend> device_ = test::make_device(std::get<1>(GetParam()));
};
INSTANTIATE_TEST_SUITE_P(Configs, DecoderOf,
                         testing::Combine(testing::Values(llama, with_biases, gemma, llama3, dynamic),
                                          testing::ValuesIn(test::kDevices)));

TEST_P(DecoderOf, ForwardMatchesTheReference) {
  const auto m = reference::random_model(config_, 1);
  const Decoder decoder(*device_, m.config, 32, backend::Precision::kF32);
  for (const RowBatch batch : {RowBatch{1, 1}, RowBatch{3, 17}, RowBatch{2, 7}, RowBatch{1, 32}}) {
    const auto states = random_states(batch.tokens(), m.config.hidden);
    const Outcome want = expected(m, states, batch), got = forward(decoder, m, states, batch);
    expect_near(got.hidden, want.hidden, 2e-5f);
    expect_near(got.logits, want.logits, 2e-5f);
  }
}

TEST_P(DecoderOf, SiteBySiteIsForwardLayer) {
  const auto m = reference::random_model(config_, 2);
  const Decoder decoder(*device_, m.config, 16, backend::Precision::kF32);
  const RowBatch batch{2, 9};
  const auto states = random_states(batch.tokens(), m.config.hidden);
  const LayerWeights weights = load(decoder, m.layers[0]);
  Tensor h = upload(*device_, states, m.config.hidden), whole = upload(*device_, states, m.config.hidden);
  decoder.forward_layer(weights, 0, batch, whole);
  Carry carry{h, {}};
  decoder.begin(weights, carry);
  const size_t widths[] = {m.config.hidden, m.config.n_heads * m.config.head_dim, m.config.hidden,
                           m.config.intermediate};
  for (size_t site = 0; site < kSites; ++site) {
    EXPECT_EQ(carry.x.cols, widths[site]);
    decoder.advance(weights, 0, site, batch, carry);
  }
  EXPECT_TRUE(carry.x.empty());
  EXPECT_EQ(read(*device_, carry.h), read(*device_, whole));
}

TEST_P(DecoderOf, CacheContinuesARow) {
  model::ModelConfig config = config_;
  if (config.rope.scaling == model::RopeScaling::kDynamic) config.max_position = 64;  // else the past's angles differ
  const auto m = reference::random_model(config, 3);
  const Decoder decoder(*device_, m.config, 16, backend::Precision::kF32);
  const RowBatch batch{3, 14};
  const size_t hidden = m.config.hidden, prompt = 5;
  const auto states = random_states(batch.tokens(), hidden);
  const Outcome want = expected(m, states, batch);
  std::vector<LayerWeights> weights;
  for (const auto& layer : m.layers) weights.push_back(load(decoder, layer));
  KvCache cache(*device_, m.config, batch.sequences, 15);
  for (size_t first = 0; first < batch.length;) {
    const RowBatch step{batch.sequences, first == 0 ? prompt : 1};
    std::vector<float> part, want_part;
    for (size_t t = 0; t < step.tokens(); ++t) {
      const size_t row = t / step.length * batch.length + first + t % step.length;
      const auto at = static_cast<ptrdiff_t>(row * hidden), end = at + static_cast<ptrdiff_t>(hidden);
      part.insert(part.end(), states.begin() + at, states.begin() + end);
      want_part.insert(want_part.end(), want.hidden.begin() + at, want.hidden.begin() + end);
    }
    Tensor h = upload(*device_, part, hidden);
    for (size_t l = 0; l < m.config.n_layers; ++l) decoder.forward_layer(weights[l], l, step, h, &cache);
    cache.length += step.length;
    expect_near(read(*device_, h), want_part, 2e-5f);
    first += step.length;
  }
}

TEST(Decoder, CacheOfOneTokenPrompt) {
  const auto m = reference::random_model(llama(), 4);
  const auto device = backend::make_cpu_backend(1);
  const Decoder decoder(*device, m.config, 4, backend::Precision::kF32);
  const auto states = random_states(2, m.config.hidden);
  const Outcome want = expected(m, states, {1, 2});
  KvCache cache(*device, m.config, 1, 2);
  std::vector<float> got;
  for (size_t t = 0; t < 2; ++t) {
    Tensor h = upload(*device, std::span(states).subspan(t * m.config.hidden, m.config.hidden), m.config.hidden);
    for (size_t l = 0; l < m.config.n_layers; ++l) {
      decoder.forward_layer(load(decoder, m.layers[l]), l, {1, 1}, h, &cache);
    }
    ++cache.length;
    const auto row = read(*device, h);
    got.insert(got.end(), row.begin(), row.end());
  }
  expect_near(got, want.hidden, 2e-5f);
}

TEST(Decoder, LongBatchesGoThroughInChunksWithoutChangingARow) {
  const auto m = reference::random_model(gemma(), 5);
  const auto device = backend::make_cpu_backend(2);
  const Decoder decoder(*device, m.config, 24, backend::Precision::kF32);
  const RowBatch batch{400, 13};  // 5200 tokens: more than one chunk of every kind
  auto states = random_states(batch.tokens(), m.config.hidden);
  const size_t row = batch.length * m.config.hidden;
  std::copy_n(states.begin(), row, states.end() - static_cast<ptrdiff_t>(row));  // the last row equals the first
  const Outcome got = forward(decoder, m, states, batch);
  const std::vector<float> first(got.hidden.begin(), got.hidden.begin() + static_cast<ptrdiff_t>(row));
  const std::vector<float> last(got.hidden.end() - static_cast<ptrdiff_t>(row), got.hidden.end());
  expect_near(first, expected(m, {states.begin(), states.begin() + static_cast<ptrdiff_t>(row)}, {1, 13}).hidden,
              2e-5f);
  expect_near(last, first, 1e-5f);
}

TEST(Decoder, IsTheSameBytesOnEveryDeviceAtAnyThreadCount) {
  for (const auto precision : {backend::Precision::kF32, backend::Precision::kBF16}) {
    const auto m = reference::random_model(gemma(), 6);
    const RowBatch batch{20, 31};
    const auto states = random_states(batch.tokens(), m.config.hidden);
    std::vector<Outcome> outcomes;
    for (const char* name : test::kDevices) {
      for (const size_t threads : {1, 2, 3}) {
        const auto device = test::make_device(name, threads);
        outcomes.push_back(forward(Decoder(*device, m.config, 31, precision), m, states, batch));
      }
    }
    for (const Outcome& o : outcomes) {
      EXPECT_EQ(0, std::memcmp(o.hidden.data(), outcomes[0].hidden.data(), o.hidden.size() * sizeof(float)));
      EXPECT_EQ(0, std::memcmp(o.logits.data(), outcomes[0].logits.data(), o.logits.size() * sizeof(float)));
    }
  }
}

TEST(Decoder, RefusesRowsThatAreTooLong) {
  const auto m = reference::random_model(llama(), 1);
  const auto device = backend::make_cpu_backend(1);
  const Decoder decoder(*device, m.config, 8, backend::Precision::kF32);
  EXPECT_THROW(forward(decoder, m, random_states(9, m.config.hidden), {1, 9}), Error);
}

TEST(Sites, NameEveryLinearOnce) {
  size_t count = 0;
  for (size_t site = 0; site < kSites; ++site) {
    for (const auto kind : site_linears(site)) {
      EXPECT_EQ(site_of(kind), site);
      EXPECT_EQ(static_cast<size_t>(kind), count++);
    }
  }
  EXPECT_EQ(count, model::kLinearsPerLayer);
}

}  // namespace
}  // namespace bw::nn
