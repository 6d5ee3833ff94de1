#include "quant/factor.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "backend/host.h"
#include "bitwright/error.h"

namespace bw::quant {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Block = Eigen::Map<RowMajor, 0, Eigen::OuterStride<>>;

constexpr size_t kBlock = 128;
constexpr size_t kBand =
    1024;  // tall enough for products at full speed, short enough to skip most zeros below the diagonal
constexpr int kDampingSteps = 3;

Block block_of(MatrixView<float> m, size_t row, size_t col, size_t rows, size_t cols) {
  return Block(m.row(row) + col, static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(cols),
               Eigen::OuterStride<>(static_cast<Eigen::Index>(m.stride)));
}

backend::Tensor part(MatrixView<float> m, size_t row, size_t col, size_t rows, size_t cols) {
  return backend::borrow(MatrixView<float>(m.data + row * m.stride + col, rows, cols, m.stride));
}

// Inverse of an upper triangular block.
RowMajor inverse_upper(const RowMajor& r) {
  return r.triangularView<Eigen::Upper>().solve(RowMajor::Identity(r.rows(), r.cols()));
}

// Upper triangle of a becomes C with a = Cᵀ C. `inverses` gets C_kk⁻¹ of every diagonal block. False if a is not
// positive definite.
bool cholesky_upper(backend::Backend& host, MatrixView<float> a, std::vector<RowMajor>& inverses) {
  const size_t n = a.rows;
  const Matrix<float> minus = [] {
    Matrix<float> m(kBlock, 1);
    std::fill(m.span().begin(), m.span().end(), -1.0f);
    return m;
  }();
  for (size_t k = 0; k < n; k += kBlock) {
    const size_t b = std::min(kBlock, n - k), rest = n - k - b;
    Block diagonal = block_of(a, k, k, b, b);
    RowMajor full = diagonal.selfadjointView<Eigen::Upper>();
    const Eigen::LLT<RowMajor, Eigen::Upper> llt(full);
    if (llt.info() != Eigen::Success) return false;
    RowMajor c = llt.matrixU();
    if (!c.allFinite()) return false;
    diagonal.triangularView<Eigen::Upper>() = c;
    inverses.push_back(inverse_upper(c));
    if (rest == 0) break;
    const RowMajor panel = block_of(a, k, k + b, b, rest);
    const RowMajor left = inverses.back().transpose();
    const backend::Tensor row = part(a, k, k + b, b, rest);
    host.gemm(backend::borrow(MatrixView<const float>(left.data(), b, b)), false,
              backend::borrow(MatrixView<const float>(panel.data(), b, rest)), false, row, 1.0f, 0.0f,
              backend::Precision::kF32);
    const backend::Tensor weight = backend::borrow(minus.view().rows_slice(0, b));
    host.accumulate_gram(row, &weight, part(a, k + b, k + b, rest, rest), backend::Precision::kF32);
  }
  return true;
}

// v = c⁻¹ for upper triangular c; v must be zero.
void invert_upper(backend::Backend& host, MatrixView<float> c, const std::vector<RowMajor>& inverses,
                  MatrixView<float> v) {
  const size_t n = c.rows;
  Matrix<float> product(n, kBlock);
  for (size_t k = 0, i = 0; k < n; k += kBlock, ++i) {
    const size_t b = std::min(kBlock, n - k);
    block_of(v, k, k, b, b).triangularView<Eigen::Upper>() = inverses[i];
    if (k == 0) continue;
    // V[0:k, k] = -V[0:k, 0:k] · C[0:k, k] · C_kk⁻¹, in bands of rows that begin at V's diagonal
    const backend::Tensor left = backend::borrow(MatrixView<float>(product.data(), k, b));
    for (size_t r = 0; r < k; r += kBand) {
      const size_t rows = std::min(kBand, k - r);
      host.gemm(part(v, r, r, rows, k - r), false, part(c, r, k, k - r, b), false, left.rows_slice(r, rows), 1.0f, 0.0f,
                backend::Precision::kF32);
    }
    host.gemm(left, false, backend::borrow(MatrixView<const float>(inverses[i].data(), b, b)), false,
              part(v, 0, k, k, b), -1.0f, 0.0f, backend::Precision::kF32);
  }
}

// (n, n) upper triangle of h with rows and columns in reversed activation order, plus damp on the diagonal.
Matrix<float> reversed(ThreadPool& pool, MatrixView<const float> h, const std::vector<uint32_t>& order,
                       std::span<const float> diagonal, float damp) {
  const size_t n = h.rows;
  Matrix<float> a(n, n);
  pool.parallel_for(n, [&](size_t r, size_t) {
    const uint32_t i = order[n - 1 - r];
    float* out = a.row(r);
    for (size_t c = r + 1; c < n; ++c) {
      const uint32_t j = order[n - 1 - c];
      out[c] = i < j ? h(i, j) : h(j, i);
    }
    out[r] = diagonal[i] + damp;
  });
  return a;
}

// U[i][j] = V[n-1-j][n-1-i]: transposed and reversed.
Matrix<float> unreversed(ThreadPool& pool, MatrixView<const float> v) {
  const size_t n = v.rows;
  Matrix<float> u(n, n, true);
  constexpr size_t kTile = 64;  // both sides of the transposition stay in cache
  pool.parallel_for((n + kTile - 1) / kTile, [&](size_t tile, size_t) {
    const size_t end = std::min(n, (tile + 1) * kTile);
    for (size_t j0 = tile * kTile; j0 < n; j0 += kTile) {
      for (size_t i = tile * kTile; i < end; ++i) {
        for (size_t j = std::max(i, j0); j < std::min(n, j0 + kTile); ++j) u(i, j) = v(n - 1 - j, n - 1 - i);
      }
    }
  });
  return u;
}

Factor identity_factor(std::span<const float> diagonal) {
  const size_t n = diagonal.size();
  Factor f;
  f.identity = true;
  f.order.resize(n);
  std::iota(f.order.begin(), f.order.end(), 0u);
  f.u = Matrix<float>(n, n, true);
  f.weights.assign(diagonal.begin(), diagonal.end());
  for (size_t i = 0; i < n; ++i) f.u(i, i) = 1.0f / std::sqrt(diagonal[i]);
  return f;
}

// The diagonal of h, after a check of the whole upper triangle.
std::vector<float> finite_diagonal(MatrixView<const float> h, const std::string& name) {
  std::vector<float> diagonal(h.rows);
  for (size_t i = 0; i < h.rows; ++i) {
    diagonal[i] = h(i, i);
    const float* row = h.row(i);
    const float* bad = std::find_if(row + i, row + h.cols, [](float x) { return !std::isfinite(x); });
    if (bad == row + h.cols && diagonal[i] >= 0) continue;
    const auto j = bad == row + h.cols ? i : static_cast<size_t>(bad - row);
    throw Error(ErrorCode::kNumeric, fmt::format("{}: the Hessian is {} at inputs {} and {}", name, h(i, j), i, j),
                "the activations are not finite there; check the model's weights for NaN or Inf");
  }
  return diagonal;
}

}  // namespace

Factor factorize(backend::Backend& host, MatrixView<const float> h, float damping, const std::string& name) {
  BW_CHECK(h.rows == h.cols && host.host_pool() != nullptr);
  ThreadPool& pool = *host.host_pool();
  const size_t n = h.rows;
  std::vector<float> diagonal = finite_diagonal(h, name);
  const double sum = std::accumulate(diagonal.begin(), diagonal.end(), 0.0);
  const auto dead = static_cast<uint32_t>(std::count(diagonal.begin(), diagonal.end(), 0.0f));
  const float mean = n == dead ? 1.0f : static_cast<float>(sum / static_cast<double>(n - dead));
  for (float& d : diagonal) {
    if (d == 0) d = mean;
  }
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return diagonal[a] > diagonal[b]; });

  for (int step = 0; step <= kDampingSteps; ++step, damping *= 10) {
    Matrix<float> a = reversed(pool, h, order, diagonal, damping * mean);
    std::vector<RowMajor> inverses;
    if (!cholesky_upper(host, a.view(), inverses)) continue;
    Matrix<float> v(n, n, true);
    invert_upper(host, a.view(), inverses, v.view());
    Factor f;
    f.order = std::move(order);
    f.u = unreversed(pool, v.view());
    f.damping = damping;
    f.dead = dead;
    f.weights.resize(n);
    for (size_t i = 0; i < n; ++i) f.weights[i] = 1.0f / (f.u(i, i) * f.u(i, i));
    return f;
  }
  Factor f = identity_factor(diagonal);
  f.dead = dead;
  return f;
}

}  // namespace bw::quant
