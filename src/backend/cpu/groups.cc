// Rounding of groups: scales, prices, codes, and back.
#include <algorithm>
#include <array>
#include <vector>

#include "backend/cpu/group_kernel.h"
#include "backend/cpu/ops.h"
#include "backend/scale_grid.h"

namespace bw::backend::cpu {
namespace {

constexpr size_t kTileColumns = 256;  // columns of one task: a panel of 128 rows is 128 kB

size_t tiles_of(size_t cols) { return (cols + kTileColumns - 1) / kTileColumns; }

template <typename T>
MatrixView<T> tile_of(MatrixView<T> m, size_t tile) {
  const size_t first = tile * kTileColumns;
  return m.cols_slice(first, std::min(kTileColumns, m.cols - first));
}

struct PriceTask {
  size_t width, size, group;
};

// The group's error at one width, rounded to nearest with the scales that GPTQ would choose.
double group_error(ConstView rows, const float* weights, int bits, std::vector<float>& wanted,
                   std::vector<uint8_t>& codes) {
  find_scales(rows, weights, bits, wanted.data());
  const auto scales = code_scales(scale_max_for(*std::max_element(wanted.begin(), wanted.end())));
  std::array<double, kMaxGroupRows> errors{};
  find_codes(rows, weights, bits, scales.data(), codes.data(), errors.data());
  double sum = 0;
  for (size_t r = 0; r < rows.rows; ++r) sum += errors[r];
  return sum;
}

}  // namespace

void transpose_in_order(ThreadPool& pool, ConstView w, const int32_t* order, View rows) {
  pool.parallel_for((rows.cols + kColumnStep - 1) / kColumnStep, [&](size_t tile, size_t) {
    const size_t first = tile * kColumnStep, end = std::min(first + kColumnStep, rows.cols);
    const size_t filled = std::clamp(w.rows, first, end);
    for (size_t r = 0; r < rows.rows; ++r) {
      const float* column = w.data + (order ? static_cast<size_t>(order[r]) : r);
      for (size_t c = first; c < filled; ++c) rows(r, c) = column[c * w.stride];
      std::fill(rows.row(r) + filled, rows.row(r) + end, 0.0f);
    }
  });
}

void price_groups(ThreadPool& pool, const op::PriceGroups& op) {
  const ConstView w = floats(op.rows);
  const float* weights = floats(op.weights).data;
  const auto errors = view_of<double>(op.errors);
  std::vector<PriceTask> tasks;
  for (size_t size = 0; size < op.sizes.size(); ++size) {
    const size_t groups = (w.rows + op.sizes[size] - 1) / op.sizes[size];
    for (size_t group = 0; group < groups; ++group) {
      for (size_t width = 0; width < op.widths.size(); ++width) tasks.push_back({width, size, group});
    }
  }
  struct Scratch {
    std::vector<float> wanted;
    std::vector<uint8_t> codes;
  };
  std::vector<Scratch> scratch(pool.threads());
  for (Scratch& s : scratch) s = {std::vector<float>(w.cols), std::vector<uint8_t>(w.cols)};
  pool.parallel_for(tasks.size(), [&](size_t i, size_t worker) {
    const PriceTask& t = tasks[i];
    const size_t first = t.group * op.sizes[t.size], rows = std::min<size_t>(op.sizes[t.size], w.rows - first);
    errors(t.width * op.sizes.size() + t.size, t.group) = group_error(
        w.rows_slice(first, rows), weights + first, op.widths[t.width], scratch[worker].wanted, scratch[worker].codes);
  });
}

void group_scale(ThreadPool& pool, const op::GroupScale& op) {
  const ConstView rows = floats(op.rows);
  const float* weights = floats(op.weights).data;
  float* wanted = floats(op.wanted).data;
  pool.parallel_for(tiles_of(rows.cols), [&](size_t tile, size_t) {
    find_scales(tile_of(rows, tile), weights, op.bits, wanted + tile * kTileColumns);
  });
  const float top = rows.cols == 0 ? 0.0f : *std::max_element(wanted, wanted + rows.cols);
  const Half scale_max = scale_max_for(top);
  *view_of<Half>(op.scale_max).data = scale_max;
  const auto scales = code_scales(scale_max);
  std::copy(scales.begin(), scales.end(), floats(op.code_scales).data);
}

void round_group(ThreadPool& pool, const op::RoundGroup& op) {
  const View panel = floats(op.panel), errors = floats(op.errors);
  const ConstView u = floats(op.u);
  const float *weights = floats(op.weights).data, *scales = floats(op.code_scales).data;
  const auto codes = view_of<uint8_t>(op.codes);
  uint8_t* scale_codes = view_of<uint8_t>(op.scale_codes).data;
  const size_t rows = codes.rows;
  std::vector<double> tile_errors(tiles_of(panel.cols), 0.0);
  pool.parallel_for(tile_errors.size(), [&](size_t tile, size_t) {
    const View part = tile_of(panel, tile);
    uint8_t* chosen = scale_codes + tile * kTileColumns;
    find_codes(part.rows_slice(0, rows), weights, op.bits, scales, chosen, nullptr);
    float column_scales[kTileColumns];
    for (size_t c = 0; c < part.cols; ++c) column_scales[c] = scales[chosen[c]];
    round_and_feed(part, rows, u, op.bits, column_scales, tile_of(codes, tile), tile_of(errors, tile),
                   &tile_errors[tile]);
  });
  double& error = *view_of<double>(op.error).data;
  for (const double e : tile_errors) error += e;
}

void refine_group(ThreadPool& pool, const op::RefineGroup& op) {
  const View gradient = floats(op.gradient), error = floats(op.error);
  const ConstView h = floats(op.h);
  const auto codes = view_of<uint8_t>(op.codes);
  const uint8_t* scale_codes = view_of<uint8_t>(op.scale_codes).data;
  const auto scales = code_scales(*view_of<Half>(op.scale_max).data);
  std::vector<double> gains(tiles_of(gradient.cols), 0.0);
  pool.parallel_for(gains.size(), [&](size_t tile, size_t) {
    const View part = tile_of(gradient, tile);
    float column_scales[kTileColumns];
    for (size_t c = 0; c < part.cols; ++c) column_scales[c] = scales[scale_codes[tile * kTileColumns + c]];
    gains[tile] = descend(part, h, op.bits, column_scales, tile_of(codes, tile), tile_of(error, tile));
  });
  double& sum = *view_of<double>(op.sum).data;
  for (const double gain : gains) sum -= gain;
}

void dequantize(ThreadPool& pool, const op::Dequantize& op) {
  const View w = floats(op.w);
  const auto codes = view_of<const uint8_t>(op.codes), scale_codes = view_of<const uint8_t>(op.scale_codes);
  const auto scale_max = view_of<const Half>(op.scale_max);
  const auto order = view_of<const int32_t>(op.order);
  const int zero = 1 << (op.bits - 1);
  pool.parallel_for((w.rows + kColumnStep - 1) / kColumnStep, [&](size_t tile, size_t) {
    const size_t first = tile * kColumnStep, last = std::min(w.rows, first + kColumnStep);
    for (size_t g = 0; g < scale_max.rows; ++g) {
      const auto scales = code_scales(scale_max(g, 0));
      const size_t end = std::min<size_t>(codes.rows, (g + 1) * op.group_size);
      for (size_t r = g * op.group_size; r < end; ++r) {
        float* column = w.data + order(r, 0);
        for (size_t c = first; c < last; ++c) {
          column[c * w.stride] = round_to_half(static_cast<float>(codes(r, c) - zero) * scales[scale_codes(g, c)]);
        }
      }
    }
  });
}

}  // namespace bw::backend::cpu
