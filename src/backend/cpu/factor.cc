// The factor of the inverse Hessian.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "backend/cpu/gemm.h"
#include "backend/cpu/ops.h"

namespace bw::backend::cpu {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Block = Eigen::Map<RowMajor, 0, Eigen::OuterStride<>>;

constexpr size_t kBlock = 128;
constexpr size_t kBand =
    1024;  // tall enough for products at full speed, short enough to skip most zeros below the diagonal

Block block_of(View m, size_t row, size_t col, size_t rows, size_t cols) {
  return Block(m.row(row) + col, static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(cols),
               Eigen::OuterStride<>(static_cast<Eigen::Index>(m.stride)));
}

View part(View m, size_t row, size_t col, size_t rows, size_t cols) {
  return View(m.data + row * m.stride + col, rows, cols, m.stride);
}

// Inverse of an upper triangular block.
RowMajor inverse_upper(const RowMajor& r) {
  return r.triangularView<Eigen::Upper>().solve(RowMajor::Identity(r.rows(), r.cols()));
}

// Upper triangle of a becomes C with a = Cᵀ C. `inverses` gets C_kk⁻¹ of every diagonal block. False if a is not
// positive definite.
bool cholesky_upper(Gemm& gemm, View a, std::vector<RowMajor>& inverses) {
  const size_t n = a.rows;
  const std::vector<float> minus(kBlock, -1.0f);
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
    const View row = part(a, k, k + b, b, rest);
    gemm.gemm(ConstView(left.data(), b, b), false, ConstView(panel.data(), b, rest), false, row, 1.0f, 0.0f,
              Operands::kF32);
    const ConstView weight(minus.data(), b, 1);
    gemm.accumulate_gram(row, &weight, part(a, k + b, k + b, rest, rest), Operands::kF32);
  }
  return true;
}

// v = c⁻¹ for upper triangular c; v must be zero.
void invert_upper(Gemm& gemm, View c, const std::vector<RowMajor>& inverses, View v) {
  const size_t n = c.rows;
  Matrix<float> product(n, kBlock);
  for (size_t k = 0, i = 0; k < n; k += kBlock, ++i) {
    const size_t b = std::min(kBlock, n - k);
    block_of(v, k, k, b, b).triangularView<Eigen::Upper>() = inverses[i];
    if (k == 0) continue;
    // V[0:k, k] = -V[0:k, 0:k] · C[0:k, k] · C_kk⁻¹, in bands of rows that begin at V's diagonal
    const View left(product.data(), k, b);
    for (size_t r = 0; r < k; r += kBand) {
      const size_t rows = std::min(kBand, k - r);
      gemm.gemm(part(v, r, r, rows, k - r), false, part(c, r, k, k - r, b), false, left.rows_slice(r, rows), 1.0f, 0.0f,
                Operands::kF32);
    }
    gemm.gemm(left, false, ConstView(inverses[i].data(), b, b), false, part(v, 0, k, k, b), -1.0f, 0.0f,
              Operands::kF32);
  }
}

// (n, n) upper triangle of h with rows and columns in reversed activation order, plus damp on the diagonal.
Matrix<float> reversed(ThreadPool& pool, ConstView h, const int32_t* order, std::span<const float> diagonal,
                       float damp) {
  const size_t n = h.rows;
  Matrix<float> a(n, n);
  pool.parallel_for(n, [&](size_t r, size_t) {
    const auto i = static_cast<size_t>(order[n - 1 - r]);
    float* out = a.row(r);
    for (size_t c = r + 1; c < n; ++c) {
      const auto j = static_cast<size_t>(order[n - 1 - c]);
      out[c] = i < j ? h(i, j) : h(j, i);
    }
    out[r] = diagonal[i] + damp;
  });
  return a;
}

// full = h in activation order, both triangles, plus damp on the diagonal.
void in_order(ThreadPool& pool, ConstView h, MatrixView<const int32_t> order, std::span<const float> diagonal,
              float damp, View full) {
  pool.parallel_for(h.rows, [&](size_t r, size_t) {
    const auto i = static_cast<size_t>(order(r, 0));
    float* out = full.row(r);
    for (size_t c = 0; c < h.cols; ++c) {
      const auto j = static_cast<size_t>(order(c, 0));
      out[c] = i < j ? h(i, j) : h(j, i);
    }
    out[r] = diagonal[i] + damp;
  });
}

constexpr size_t kTile = 64;  // both sides of a transposition stay in cache

// u[i][j] = v[n-1-j][n-1-i], transposed and reversed, for j >= i; zero below.
void unreversed(ThreadPool& pool, ConstView v, View u) {
  const size_t n = v.rows;
  pool.parallel_for((n + kTile - 1) / kTile, [&](size_t tile, size_t) {
    const size_t end = std::min(n, (tile + 1) * kTile);
    for (size_t i = tile * kTile; i < end; ++i) std::fill(u.row(i), u.row(i) + i, 0.0f);
    for (size_t j0 = tile * kTile; j0 < n; j0 += kTile) {
      for (size_t i = tile * kTile; i < end; ++i) {
        for (size_t j = std::max(i, j0); j < std::min(n, j0 + kTile); ++j) u(i, j) = v(n - 1 - j, n - 1 - i);
      }
    }
  });
}

// The diagonal of h; `bad` becomes 1 + the first row that is not as it must be (see kNotFinite).
std::vector<float> finite_diagonal(ConstView h, int32_t& bad) {
  std::vector<float> diagonal(h.rows);
  for (size_t i = 0; i < h.rows && bad == 0; ++i) {
    diagonal[i] = h(i, i);
    const bool finite = std::all_of(h.row(i) + i, h.row(i) + h.cols, [](float x) { return std::isfinite(x); });
    if (!finite || diagonal[i] < 0) bad = static_cast<int32_t>(i) + 1;
  }
  return diagonal;
}

// The smallest damping, of `damping` times powers of ten, at which h can be factored: how often it was raised.
int factor_damped(ThreadPool& pool, Gemm& gemm, const op::InverseFactor& op, std::span<const float> diagonal,
                  float mean) {
  const ConstView h = floats(op.h);
  const size_t n = h.rows;
  float damping = op.damping;
  for (int step = 0; step <= op::kMaxDampingSteps; ++step, damping *= 10) {
    Matrix<float> a = reversed(pool, h, view_of<int32_t>(op.order).data, diagonal, damping * mean);
    std::vector<RowMajor> inverses;
    if (!cholesky_upper(gemm, a.view(), inverses)) continue;
    Matrix<float> v(n, n, true);
    invert_upper(gemm, a.view(), inverses, v.view());
    unreversed(pool, v.view(), floats(op.u));
    if (op.ordered.memory) {
      in_order(pool, h, view_of<int32_t>(op.order), diagonal, damping * mean, floats(op.ordered));
    }
    return step;
  }
  return op::kMaxDampingSteps + 1;
}

// The factor of a diagonal matrix in natural order.
void identity(ThreadPool& pool, const std::vector<float>& diagonal, const op::InverseFactor& op) {
  const auto order = view_of<int32_t>(op.order);
  const View u = floats(op.u), weights = floats(op.weights);
  fill(pool, u, 0.0f);
  if (op.ordered.memory) fill(pool, floats(op.ordered), 0.0f);
  for (size_t i = 0; i < diagonal.size(); ++i) {
    order(i, 0) = static_cast<int32_t>(i);
    u(i, i) = 1.0f / std::sqrt(diagonal[i]);
    weights(i, 0) = diagonal[i];
    if (op.ordered.memory) floats(op.ordered)(i, i) = diagonal[i];
  }
}

}  // namespace

void symmetrize(ThreadPool& pool, ConstView h, View full) {
  const size_t n = h.rows;
  pool.parallel_for((n + kTile - 1) / kTile, [&](size_t tile, size_t) {
    const size_t end = std::min(n, (tile + 1) * kTile);
    for (size_t j0 = 0; j0 < n; j0 += kTile) {
      for (size_t i = tile * kTile; i < end; ++i) {
        for (size_t j = j0; j < std::min(n, j0 + kTile); ++j) full(i, j) = i <= j ? h(i, j) : h(j, i);
      }
    }
  });
}

void inverse_factor(ThreadPool& pool, Gemm& gemm, const op::InverseFactor& op) {
  const size_t n = op.h.rows;
  int32_t* status = view_of<int32_t>(op.status).data;
  std::fill_n(status, 4, 0);
  const auto order_view = view_of<int32_t>(op.order);
  const View u = floats(op.u), weights = floats(op.weights);
  std::vector<float> diagonal = finite_diagonal(floats(op.h), status[op::kNotFinite]);
  if (status[op::kNotFinite] != 0) return identity(pool, std::vector<float>(n, 1.0f), op);
  const double sum = std::accumulate(diagonal.begin(), diagonal.end(), 0.0);
  const auto dead = static_cast<size_t>(std::count(diagonal.begin(), diagonal.end(), 0.0f));
  const float mean = n == dead ? 1.0f : static_cast<float>(sum / static_cast<double>(n - dead));
  std::replace(diagonal.begin(), diagonal.end(), 0.0f, mean);
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  const auto falling = [&](int32_t a, int32_t b) {
    return diagonal[static_cast<size_t>(a)] > diagonal[static_cast<size_t>(b)];
  };
  std::stable_sort(order.begin(), order.end(), falling);
  for (size_t i = 0; i < n; ++i) order_view(i, 0) = order[i];

  const int steps = factor_damped(pool, gemm, op, diagonal, mean);
  status[op::kDampingSteps] = steps;
  status[op::kDeadInputs] = static_cast<int32_t>(dead);
  if (steps > op::kMaxDampingSteps) return identity(pool, diagonal, op);
  for (size_t i = 0; i < n; ++i) weights(i, 0) = 1.0f / (u(i, i) * u(i, i));
}

}  // namespace bw::backend::cpu
