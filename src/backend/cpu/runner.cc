// Operations to the functions that do them; the checks of shapes are those of op::X::check.
#include "backend/cpu/runner.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "hwy/targets.h"

#include "backend/cpu/ops.h"

namespace bw::backend::cpu {
namespace {

ConstIndexView indices(const Tensor& t) { return view_of<const int32_t>(t); }

// The view of an operand that may be left out.
struct Optional {
  explicit Optional(const Tensor& t) : given(t.memory != nullptr), view(given ? ConstView(floats(t)) : ConstView()) {}
  const ConstView* pointer() const { return given ? &view : nullptr; }
  bool given;
  ConstView view;
};

struct Context {
  ThreadPool& pool;
  Gemm& gemm;
  bool bf16_hardware;
};

Operands operands_of(Precision p, bool bf16_hardware) {
  if (p == Precision::kF32) return Operands::kF32;
  if (bf16_hardware) return Operands::kBF16;
  return p == Precision::kAuto ? Operands::kF32 : Operands::kRoundedF32;
}

template <typename T>
void copy_rows(const Tensor& src, const Tensor& dst) {
  const auto from = view_of<const T>(src);
  const auto to = view_of<T>(dst);
  for (size_t r = 0; r < from.rows; ++r) std::memmove(to.row(r), from.row(r), from.cols * sizeof(T));
}

// Between float types.
void convert(ThreadPool& pool, const Tensor& src, const Tensor& dst) {
  Matrix<float> between;
  ConstView values;
  if (src.dtype == DType::kF32) {
    values = floats(src);
  } else {
    View to = dst.dtype == DType::kF32 ? floats(dst) : (between = Matrix<float>(src.rows, src.cols)).view();
    if (src.dtype == DType::kBF16) from_bf16(pool, view_of<BFloat16>(src), to);
    if (src.dtype == DType::kF16) from_f16(pool, view_of<Half>(src), to);
    values = to;
  }
  if (dst.dtype == DType::kBF16) to_bf16(pool, values, view_of<BFloat16>(dst));
  if (dst.dtype == DType::kF16) to_f16(pool, values, view_of<Half>(dst));
}

struct Dispatch {
  Context c;

  void operator()(const op::Fill& o) const {
    if (o.x.empty()) return;
    if (o.x.dtype == DType::kF32) return fill(c.pool, floats(o.x), o.value);
    for (size_t r = 0; r < o.x.rows; ++r) {
      if (o.x.dtype == DType::kF64) std::fill_n(view_of<double>(o.x).row(r), o.x.cols, double{o.value});
      if (o.x.dtype == DType::kI32) std::fill_n(view_of<int32_t>(o.x).row(r), o.x.cols, static_cast<int32_t>(o.value));
    }
  }
  void operator()(const op::Copy& o) const {
    if (o.src.empty()) return;
    if (o.src.dtype != o.dst.dtype) return convert(c.pool, o.src, o.dst);
    switch (o.src.dtype) {
      case DType::kF32:
        return copy(c.pool, floats(o.src), floats(o.dst));
      case DType::kF64:
        return copy_rows<double>(o.src, o.dst);
      case DType::kBF16:
        return copy_rows<BFloat16>(o.src, o.dst);
      case DType::kF16:
        return copy_rows<Half>(o.src, o.dst);
      case DType::kI32:
        return copy_rows<int32_t>(o.src, o.dst);
      case DType::kU8:
        return copy_rows<uint8_t>(o.src, o.dst);
    }
  }
  void operator()(const op::PackWeight& o) const {
    auto* packed = dynamic_cast<PackedWeight*>(o.packed.get());
    BW_CHECK(packed != nullptr);
    packed->pack(c.pool, floats(o.w));
  }
  void operator()(const op::TransposeInOrder& o) const {
    if (!o.rows.empty()) {
      transpose_in_order(c.pool, floats(o.w), o.order.memory ? indices(o.order).data : nullptr, floats(o.rows));
    }
  }
  void operator()(const op::Linear& o) const {
    const auto* packed = dynamic_cast<const PackedWeight*>(o.w.get());
    BW_CHECK(packed != nullptr);
    if (o.y.empty()) return;
    c.gemm.linear(floats(o.x), *packed, o.bias.memory ? floats(o.bias).data : nullptr, floats(o.y), o.accumulate);
  }
  void operator()(const op::Gemm& o) const {
    if (o.c.empty()) return;
    c.gemm.gemm(floats(o.a), o.transpose_a, floats(o.b), o.transpose_b, floats(o.c), o.alpha, o.beta,
                operands_of(o.precision, c.bf16_hardware));
  }
  void operator()(const op::AccumulateGram& o) const {
    if (o.x.empty()) return;
    c.gemm.accumulate_gram(floats(o.x), Optional(o.weight).pointer(), floats(o.h),
                           operands_of(o.precision, c.bf16_hardware));
  }
  void operator()(const op::Symmetrize& o) const { symmetrize(c.pool, floats(o.h), floats(o.full)); }
  void operator()(const op::Dot& o) const { *view_of<double>(o.sum).data += dot(c.pool, floats(o.a), floats(o.b)); }
  void operator()(const op::RmsNorm& o) const {
    rms_norm(c.pool, floats(o.x), floats(o.weight).row_span(0), o.eps, floats(o.y));
  }
  void operator()(const op::Add& o) const { add(c.pool, floats(o.x), floats(o.y)); }
  void operator()(const op::Scale& o) const { scale(c.pool, floats(o.x), o.factor); }
  void operator()(const op::GatedActivation& o) const {
    gated_activation(c.pool, floats(o.gate), floats(o.up), o.kind, floats(o.y));
  }
  void operator()(const op::Softcap& o) const { softcap(c.pool, floats(o.x), o.cap); }
  void operator()(const op::Rope& o) const {
    rope(c.pool, floats(o.x), o.head_dim, indices(o.positions), floats(o.cos_sin), o.inverse);
  }
  void operator()(const op::RowSquaredNorms& o) const {
    row_squared_norms(c.pool, floats(o.x), Optional(o.minus).pointer(), floats(o.out));
  }
  void operator()(const op::WeightedDifference& o) const {
    weighted_difference(c.pool, floats(o.x), floats(o.minus), floats(o.weight), floats(o.y));
  }
  void operator()(const op::RowRatios& o) const {
    row_ratios(Optional(o.numerator).pointer(), floats(o.denominator), floats(o.out),
               o.sum.memory ? view_of<double>(o.sum).data : nullptr);
  }
  void operator()(const op::LargestMagnitude& o) const {
    float& largest = *floats(o.largest).data;
    largest = largest_magnitude(c.pool, floats(o.x), largest);
  }
  void operator()(const op::Attention& o) const {
    if (o.q.rows == 0) return;
    attention(c.pool, floats(o.q), floats(o.k), floats(o.v), o.sequences, o.shape, floats(o.out));
  }
  void operator()(const op::AttentionCached& o) const {
    attention_cached(c.pool, floats(o.q), floats(o.k_cache), floats(o.v_cache), o.capacity, o.length, o.shape,
                     floats(o.out));
  }
  void operator()(const op::TokenNll& o) const {
    token_nll(c.pool, floats(o.logits), indices(o.targets), floats(o.nll));
  }
  void operator()(const op::CompareLogits& o) const {
    compare_logits(c.pool, floats(o.p_logits), floats(o.q_logits), indices(o.targets), floats(o.out));
  }
  void operator()(const op::RmsNormGradient& o) const {
    rms_norm_gradient(c.pool, floats(o.x), floats(o.weight).row_span(0), o.eps, floats(o.dy), o.accumulate,
                      floats(o.dx));
  }
  void operator()(const op::GatedActivationGradient& o) const {
    gated_activation_gradient(c.pool, floats(o.gate), floats(o.up), o.kind, floats(o.dy), floats(o.dgate),
                              floats(o.dup));
  }
  void operator()(const op::AttentionGradient& o) const {
    if (o.q.rows != 0) attention_gradient(c.pool, o);
  }
  void operator()(const op::SampledGradient& o) const {
    sampled_gradient(c.pool, floats(o.logits), floats(o.uniforms), o.softcap);
  }
  void operator()(const op::InverseFactor& o) const { inverse_factor(c.pool, c.gemm, o); }
  void operator()(const op::HeldOutWeights& o) const { held_out_weights(c.pool, o); }
  void operator()(const op::PriceGroups& o) const { price_groups(c.pool, o); }
  void operator()(const op::GroupScale& o) const { group_scale(c.pool, o); }
  void operator()(const op::RoundGroup& o) const { round_group(c.pool, o); }
  void operator()(const op::RefineGroup& o) const { refine_group(c.pool, o); }
  void operator()(const op::Dequantize& o) const {
    if (!o.codes.empty()) dequantize(c.pool, o);
  }
  void operator()(const op::PackBits& o) const {
    pack_bits(c.pool, view_of<const uint8_t>(o.codes), o.bits, view_of<uint32_t>(o.words));
  }
  void operator()(const op::UnpackBits& o) const {
    unpack_bits(c.pool, view_of<const uint32_t>(o.words), o.bits, view_of<uint8_t>(o.codes));
  }
  void operator()(const op::PackNibbles& o) const {
    pack_nibbles(c.pool, view_of<const uint8_t>(o.codes), view_of<uint32_t>(o.words));
  }
  void operator()(const op::UnpackNibbles& o) const {
    unpack_nibbles(c.pool, view_of<const uint32_t>(o.words), view_of<uint8_t>(o.codes));
  }
  void operator()(const op::CountDifferences& o) const {
    *view_of<int32_t>(o.count).data +=
        count_differences(c.pool, view_of<const uint8_t>(o.a), view_of<const uint8_t>(o.b));
  }
};

}  // namespace

Runner::Runner(size_t threads, bool bf16_hardware)
    : bf16_hardware_(bf16_hardware), pool_(threads), gemm_(pool_, *blocks_) {
  // Highway would choose at the first call, once for each pointer taken before: slow, since virtual machines trap
  // CPUID.
  if (!hwy::GetChosenTarget().IsInitialized()) hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

void Runner::run(const Op& op) {
  using Time = std::chrono::steady_clock;
  const bool timed = work_of(op).linear;
  const Time::time_point begin = timed ? Time::now() : Time::time_point();
  std::visit(Dispatch{{pool_, gemm_, bf16_hardware_}}, op);
  if (timed) linear_seconds_ += std::chrono::duration<double>(Time::now() - begin).count();
}

std::shared_ptr<Weight> Runner::new_weight(size_t out, size_t in, Precision precision) const {
  return std::make_shared<PackedWeight>(out, in, operands_of(precision, bf16_hardware_));
}

}  // namespace bw::backend::cpu
