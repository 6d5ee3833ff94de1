#include "quant/gptq.h"

#include <algorithm>

#include "backend/host.h"
#include "quant/group_kernel.h"
#include "quant/scale_grid.h"

namespace bw::quant {
namespace {

constexpr size_t kTileColumns = 256;  // columns of one task: a panel of 128 rows is 128 kB
constexpr size_t kPanelRows = 256;    // rows whose errors are fed forward inside a panel before the one product past it

// A range of whole groups, [first_group, last_group), and the rows they span.
struct Panel {
  size_t first_group = 0, last_group = 0;
  size_t first = 0, rows = 0;
};

std::vector<Panel> panels_of(const std::vector<Group>& groups) {
  std::vector<Panel> panels;
  for (size_t g = 0; g < groups.size();) {
    Panel p{g, g, groups[g].first, 0};
    while (p.last_group < groups.size() && (p.rows == 0 || p.rows + groups[p.last_group].rows <= kPanelRows)) {
      p.rows += groups[p.last_group++].rows;
    }
    panels.push_back(p);
    g = p.last_group;
  }
  return panels;
}

size_t tiles_of(size_t cols) { return (cols + kTileColumns - 1) / kTileColumns; }

template <typename T>
MatrixView<T> tile_of(MatrixView<T> m, size_t tile) {
  const size_t first = tile * kTileColumns;
  return m.cols_slice(first, std::min(kTileColumns, m.cols - first));
}

// The largest scale that a column of the group wants. wanted: (cols) scratch.
float choose_scale_max(ThreadPool& pool, MatrixView<const float> rows, const float* weights, int bits, float* wanted) {
  pool.parallel_for(tiles_of(rows.cols), [&](size_t tile, size_t) {
    find_scales(tile_of(rows, tile), weights, bits, wanted + tile * kTileColumns);
  });
  return *std::max_element(wanted, wanted + rows.cols);
}

}  // namespace

Matrix<float> transposed_in_order(ThreadPool& pool, MatrixView<const float> w, const std::vector<uint32_t>& order) {
  BW_CHECK(order.size() == w.cols);
  const size_t padded = (w.rows + kColumnStep - 1) / kColumnStep * kColumnStep;
  Matrix<float> t(w.cols, padded, padded != w.rows);
  pool.parallel_for((w.rows + kColumnStep - 1) / kColumnStep, [&](size_t tile, size_t) {
    const size_t first = tile * kColumnStep, n = std::min(kColumnStep, w.rows - first);
    for (size_t r = 0; r < w.cols; ++r) {
      const float* column = w.data + order[r];
      for (size_t c = first; c < first + n; ++c) t(r, c) = column[c * w.stride];
    }
  });
  return t;
}

QuantizedLinear quantize_gptq(backend::Backend& host, Matrix<float> w, uint32_t out, const Factor& factor,
                              const Layout& layout) {
  ThreadPool& pool = *host.host_pool();
  const size_t in = w.rows(), cols = w.cols();
  BW_CHECK(layout.rows() == in && factor.order.size() == in && cols % kColumnStep == 0 && out <= cols);
  const std::vector<Group> groups = layout.groups();
  QuantizedLinear q{layout,
                    static_cast<uint32_t>(in),
                    out,
                    factor.order,
                    Matrix<uint8_t>(in, cols),
                    Matrix<uint8_t>(groups.size(), cols),
                    std::vector<Half>(groups.size()),
                    0};
  Matrix<float> errors(std::min(kPanelRows, in), cols);
  std::vector<float> wanted(cols);
  std::vector<double> tile_errors(tiles_of(cols), 0.0);

  for (const Panel& panel : panels_of(groups)) {
    const size_t panel_end = panel.first + panel.rows;
    for (size_t g = panel.first_group; g < panel.last_group; ++g) {
      const Group& group = groups[g];
      const float* weights = factor.weights.data() + group.first;
      const MatrixView<float> rows = w.view().rows_slice(group.first, panel_end - group.first);
      q.scale_max[g] =
          scale_max_for(choose_scale_max(pool, rows.rows_slice(0, group.rows), weights, group.bits, wanted.data()));
      const auto scales = code_scales(q.scale_max[g]);
      const MatrixView<const float> u(factor.u.row(group.first) + group.first, panel_end - group.first,
                                      panel_end - group.first, in);
      pool.parallel_for(tiles_of(cols), [&](size_t tile, size_t) {
        const MatrixView<float> part = tile_of(rows, tile);
        uint8_t* codes = q.scale_codes.row(g) + tile * kTileColumns;
        find_codes(part.rows_slice(0, group.rows), weights, group.bits, scales.data(), codes, nullptr);
        float column_scales[kTileColumns];
        for (size_t c = 0; c < part.cols; ++c) column_scales[c] = scales[codes[c]];
        round_and_feed(part, group.rows, u, group.bits, column_scales,
                       tile_of(q.codes.view().rows_slice(group.first, group.rows), tile),
                       tile_of(errors.view().rows_slice(group.first - panel.first, group.rows), tile),
                       &tile_errors[tile]);
      });
    }
    if (panel_end == in) break;
    // W[panel_end:, :] -= U[panel, panel_end:]ᵀ · E
    const MatrixView<const float> u(factor.u.row(panel.first) + panel_end, panel.rows, in - panel_end, in);
    host.gemm(backend::borrow(u), true, backend::borrow(errors.view().rows_slice(0, panel.rows)), false,
              backend::borrow(w.view().rows_slice(panel_end, in - panel_end)), -1.0f, 1.0f, backend::Precision::kF32);
  }
  for (const double e : tile_errors) q.error += e;
  return q;
}

Matrix<float> dequantize(ThreadPool& pool, const QuantizedLinear& q) {
  Matrix<float> w(q.out, q.in);
  const std::vector<Group> groups = q.layout.groups();
  pool.parallel_for((q.out + kColumnStep - 1) / kColumnStep, [&](size_t tile, size_t) {
    const size_t first = tile * kColumnStep, last = std::min<size_t>(q.out, first + kColumnStep);
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto scales = code_scales(q.scale_max[g]);
      const int zero = 1 << (groups[g].bits - 1);
      for (size_t r = groups[g].first; r < groups[g].first + groups[g].rows; ++r) {
        for (size_t c = first; c < last; ++c) {
          w(c, q.order[r]) = round_to_half(static_cast<float>(q.codes(r, c) - zero) * scales[q.scale_codes(g, c)]);
        }
      }
    }
  });
  return w;
}

}  // namespace bw::quant
