// Operations that take every element by itself.
#include "backend/cuda/kernels.cuh"

namespace bw::backend::BW_CUDA_NAMESPACE {
namespace {

struct AddBody {
  ConstFloats x;
  Floats y;
  __device__ void operator()(size_t r, size_t c) const { y(r, c) += x(r, c); }
};

struct AddRowBody {
  ConstFloats row;
  bool accumulate;
  Floats y;
  __device__ void operator()(size_t r, size_t c) const { y(r, c) = accumulate ? y(r, c) + row(0, c) : row(0, c); }
};

struct ScaleBody {
  Floats x;
  float factor;
  __device__ void operator()(size_t r, size_t c) const { x(r, c) *= factor; }
};

struct WeightedDifferenceBody {
  ConstFloats x, minus, weight;
  Floats y;
  __device__ void operator()(size_t r, size_t c) const { y(r, c) = weight(r, 0) * (x(r, c) - minus(r, c)); }
};

struct SoftcapBody {
  Floats x;
  float cap, inverse;
  __device__ void operator()(size_t r, size_t c) const { x(r, c) = cap * tanhf(x(r, c) * inverse); }
};

// Activations: their value, and `gradient`, which sets value and slope.
struct Silu {
  // The exponent is bounded where exp would overflow: the quotient is nil there.
  __device__ static float of(float g) { return g / (1.0f + expf(fminf(-g, 88.0f))); }
  __device__ static void gradient(float g, float& value, float& slope) {
    const float e = expf(fminf(-g, 88.0f)), s = 1.0f / (1.0f + e);
    value = g * s;
    slope = fmaf(value, e * s, s);
  }
};
struct GeluTanh {
  __device__ static float of(float g) {
    constexpr float kRoot = 0.7978845608f;  // sqrt(2 / pi)
    return 0.5f * g * (1.0f + tanhf(g * fmaf(kRoot * 0.044715f, g * g, kRoot)));
  }
  __device__ static void gradient(float g, float& value, float& slope) {
    constexpr float kRoot = 0.7978845608f;
    const float t = tanhf(g * fmaf(kRoot * 0.044715f, g * g, kRoot)), share = 0.5f * (1.0f + t);
    value = g * share;
    slope = share + 0.5f * g * (1.0f - t * t) * fmaf(3 * kRoot * 0.044715f, g * g, kRoot);
  }
};
struct Gelu {
  __device__ static float of(float g) { return 0.5f * g * (1.0f + erff(g * 0.70710678f)); }
  __device__ static void gradient(float g, float& value, float& slope) {
    const float share = 0.5f * (1.0f + erff(g * 0.70710678f));
    value = g * share;
    slope = share + g * 0.39894228f * expf(-0.5f * g * g);
  }
};

template <typename Activation>
struct GatedBody {
  ConstFloats gate, up;
  Floats y;
  __device__ void operator()(size_t r, size_t c) const { y(r, c) = Activation::of(gate(r, c)) * up(r, c); }
};

template <typename Activation>
void gated(cudaStream_t stream, ConstFloats gate, ConstFloats up, Floats y) {
  for_each(stream, y.rows, y.cols, GatedBody<Activation>{gate, up, y});
}

// dgate and dup may be operands: all is read before anything is written.
template <typename Activation>
struct GatedGradientBody {
  ConstFloats gate, up, dy;
  Floats dgate, dup;
  __device__ void operator()(size_t r, size_t c) const {
    const float u = up(r, c), g = dy(r, c);
    float value, slope;
    Activation::gradient(gate(r, c), value, slope);
    dgate(r, c) = g * u * slope;
    dup(r, c) = g * value;
  }
};

// Column c: pair c % half of head c / half. A position outside the table gives NaN.
struct RopeBody {
  Floats x;
  size_t half;
  ConstInts positions;
  ConstFloats cos_sin;
  float direction;  // 1, or -1 for back
  __device__ void operator()(size_t r, size_t c) const {
    const size_t i = c % half, first = c / half * 2 * half + i;
    const auto position = static_cast<size_t>(static_cast<int64_t>(positions(r, 0)));
    const bool known = position < cos_sin.rows;
    const float cos = known ? cos_sin(position, i) : nanf("");
    const float sin = known ? direction * cos_sin(position, half + i) : nanf("");
    const float a = x(r, first), b = x(r, first + half);
    x(r, first) = fmaf(-b, sin, a * cos);
    x(r, first + half) = fmaf(a, sin, b * cos);
  }
};

}  // namespace

void add(cudaStream_t stream, ConstFloats x, Floats y) { for_each(stream, y.rows, y.cols, AddBody{x, y}); }

void add_row(cudaStream_t stream, ConstFloats row, bool accumulate, Floats y) {
  for_each(stream, y.rows, y.cols, AddRowBody{row, accumulate, y});
}

void scale(cudaStream_t stream, Floats x, float factor) { for_each(stream, x.rows, x.cols, ScaleBody{x, factor}); }

void weighted_difference(cudaStream_t stream, ConstFloats x, ConstFloats minus, ConstFloats weight, Floats y) {
  for_each(stream, y.rows, y.cols, WeightedDifferenceBody{x, minus, weight, y});
}

void gated_activation(cudaStream_t stream, ConstFloats gate, ConstFloats up, ActivationKind kind, Floats y) {
  switch (kind) {
    case ActivationKind::kSilu:
      return gated<Silu>(stream, gate, up, y);
    case ActivationKind::kGeluTanh:
      return gated<GeluTanh>(stream, gate, up, y);
    case ActivationKind::kGelu:
      return gated<Gelu>(stream, gate, up, y);
  }
}

void gated_activation_gradient(cudaStream_t stream, ConstFloats gate, ConstFloats up, ActivationKind kind,
                               ConstFloats dy, Floats dgate, Floats dup) {
  switch (kind) {
    case ActivationKind::kSilu:
      return for_each(stream, dy.rows, dy.cols, GatedGradientBody<Silu>{gate, up, dy, dgate, dup});
    case ActivationKind::kGeluTanh:
      return for_each(stream, dy.rows, dy.cols, GatedGradientBody<GeluTanh>{gate, up, dy, dgate, dup});
    case ActivationKind::kGelu:
      return for_each(stream, dy.rows, dy.cols, GatedGradientBody<Gelu>{gate, up, dy, dgate, dup});
  }
}

void softcap(cudaStream_t stream, Floats x, float cap) {
  for_each(stream, x.rows, x.cols, SoftcapBody{x, cap, 1.0f / cap});
}

void rope(cudaStream_t stream, Floats x, size_t head_dim, ConstInts positions, ConstFloats cos_sin, bool inverse) {
  for_each(stream, x.rows, x.cols / 2, RopeBody{x, head_dim / 2, positions, cos_sin, inverse ? -1.0f : 1.0f});
}

}  // namespace bw::backend::BW_CUDA_NAMESPACE
