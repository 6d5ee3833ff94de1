#include "backend/cuda/runner.cuh"

#include <utility>

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

ConstInts indices(const Tensor& t) { return view_of<const int32_t>(t); }
ConstBytes bytes(const Tensor& t) { return view_of<const uint8_t>(t); }

struct Dispatch {
  cudaStream_t s;
  const Allocate& allocate;
  Gemm& gemm;
  Factorizer& factorizer;

  void operator()(const op::Fill& o) const { fill(s, o.x, o.value); }
  void operator()(const op::Copy& o) const { copy(s, o.src, o.dst); }
  void operator()(const op::PackWeight& o) const {
    const auto* packed = dynamic_cast<const DeviceWeight*>(o.packed.get());
    BW_CHECK(packed != nullptr);
    copy(s, o.w, packed->data());
  }
  void operator()(const op::TransposeInOrder& o) const {
    transpose_in_order(s, floats(o.w), o.order.memory ? indices(o.order) : ConstInts(), floats(o.rows));
  }
  void operator()(const op::Linear& o) const { gemm.linear(o); }
  void operator()(const op::Gemm& o) const { gemm.gemm(o); }
  void operator()(const op::AccumulateGram& o) const { gemm.accumulate_gram(o); }
  void operator()(const op::Symmetrize& o) const { symmetrize(s, floats(o.h), floats(o.full)); }
  void operator()(const op::Dot& o) const {
    Scratch scratch(allocate);
    dot(s, scratch, floats(o.a), floats(o.b), view_of<double>(o.sum).data);
  }
  void operator()(const op::RmsNorm& o) const { rms_norm(s, floats(o.x), floats(o.weight), o.eps, floats(o.y)); }
  void operator()(const op::Add& o) const { add(s, floats(o.x), floats(o.y)); }
  void operator()(const op::Scale& o) const { scale(s, floats(o.x), o.factor); }
  void operator()(const op::GatedActivation& o) const {
    gated_activation(s, floats(o.gate), floats(o.up), o.kind, floats(o.y));
  }
  void operator()(const op::Softcap& o) const { softcap(s, floats(o.x), o.cap); }
  void operator()(const op::Rope& o) const {
    rope(s, floats(o.x), o.head_dim, indices(o.positions), floats(o.cos_sin), o.inverse);
  }
  void operator()(const op::RowSquaredNorms& o) const {
    row_squared_norms(s, floats(o.x), floats(o.minus), floats(o.out));
  }
  void operator()(const op::WeightedDifference& o) const {
    weighted_difference(s, floats(o.x), floats(o.minus), floats(o.weight), floats(o.y));
  }
  void operator()(const op::RowRatios& o) const {
    row_ratios(s, floats(o.numerator), floats(o.denominator), floats(o.out), view_of<double>(o.sum).data);
  }
  void operator()(const op::LargestMagnitude& o) const {
    Scratch scratch(allocate);
    largest_magnitude(s, scratch, floats(o.x), floats(o.largest).data);
  }
  void operator()(const op::Attention& o) const { attention(s, o); }
  void operator()(const op::AttentionCached& o) const { attention_cached(s, o); }
  void operator()(const op::TokenNll& o) const { token_nll(s, floats(o.logits), indices(o.targets), floats(o.nll)); }
  void operator()(const op::CompareLogits& o) const {
    compare_logits(s, floats(o.p_logits), floats(o.q_logits), indices(o.targets), floats(o.out));
  }
  void operator()(const op::RmsNormGradient& o) const {
    rms_norm_gradient(s, floats(o.x), floats(o.weight), o.eps, floats(o.dy), o.accumulate, floats(o.dx));
  }
  void operator()(const op::GatedActivationGradient& o) const {
    gated_activation_gradient(s, floats(o.gate), floats(o.up), o.kind, floats(o.dy), floats(o.dgate), floats(o.dup));
  }
  void operator()(const op::AttentionGradient& o) const {
    Scratch scratch(allocate);
    attention_gradient(s, scratch, o);
  }
  void operator()(const op::SampledGradient& o) const {
    sampled_gradient(s, floats(o.logits), floats(o.uniforms), o.softcap);
  }
  void operator()(const op::InverseFactor& o) const { factorizer.inverse_factor(o); }
  void operator()(const op::HeldOutWeights& o) const {
    Scratch scratch(allocate);
    held_out_weights(s, scratch, o);
  }
  void operator()(const op::PriceGroups& o) const {
    Scratch scratch(allocate);
    price_groups(s, scratch, o);
  }
  void operator()(const op::GroupScale& o) const { group_scale(s, o); }
  void operator()(const op::RoundGroup& o) const {
    Scratch scratch(allocate);
    round_group(s, scratch, o);
  }
  void operator()(const op::RefineGroup& o) const {
    Scratch scratch(allocate);
    refine_group(s, scratch, o);
  }
  void operator()(const op::Dequantize& o) const { dequantize(s, o); }
  void operator()(const op::PackBits& o) const { pack_bits(s, bytes(o.codes), o.bits, view_of<uint32_t>(o.words)); }
  void operator()(const op::UnpackBits& o) const {
    unpack_bits(s, view_of<const uint32_t>(o.words), o.bits, view_of<uint8_t>(o.codes));
  }
  void operator()(const op::PackNibbles& o) const { pack_nibbles(s, bytes(o.codes), view_of<uint32_t>(o.words)); }
  void operator()(const op::UnpackNibbles& o) const {
    unpack_nibbles(s, view_of<const uint32_t>(o.words), view_of<uint8_t>(o.codes));
  }
  void operator()(const op::CountDifferences& o) const {
    Scratch scratch(allocate);
    count_differences(s, scratch, bytes(o.a), bytes(o.b), view_of<int32_t>(o.count).data);
  }
};

}  // namespace

Runner::Runner(Device& device, Allocate allocate)
    : stream_(device.stream(Queue::kCompute)),
      allocate_(std::move(allocate)),
      gemm_(device, allocate_),
      factorizer_(device, allocate_) {}

void Runner::run(const Op& op) { std::visit(Dispatch{stream_, allocate_, gemm_, factorizer_}, op); }

std::shared_ptr<Weight> Runner::new_weight(size_t out, size_t in, Precision precision) const {
  return std::make_shared<DeviceWeight>(out, in, precision != Precision::kF32, allocate_);
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
