#include "model/finite.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bitwright/error.h"
#include "io/printable.h"

namespace bw::model {

void check_finite(std::span<const float> values, size_t cols, size_t first_row, std::string_view name) {
  const auto bad = std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
  if (bad == values.end()) return;
  const auto at = static_cast<size_t>(bad - values.begin());
  throw Error(ErrorCode::kModel,
              fmt::format("{}: row {}, column {} is {}, not a finite number", io::printable(name),
                          first_row + at / cols, at % cols, *bad),
              "the model is damaged; download it again");
}

void check_finite_sample(const io::TensorData& tensor) {
  const std::vector<uint64_t>& shape = tensor.shape();
  if (tensor.entry->elements() == 0) return;
  const size_t rows = shape.size() < 2 ? 1 : static_cast<size_t>(shape[0]);
  const auto cols = static_cast<size_t>(tensor.entry->elements() / rows);
  const size_t row_bytes = cols * io::element_size(tensor.type()), sampled = std::min(rows, kSampledRows);
  std::vector<float> row(cols);
  for (size_t i = 0; i < sampled; ++i) {
    const size_t at = sampled == 1 ? 0 : i * (rows - 1) / (sampled - 1);
    io::convert_to_float(tensor.type(), tensor.bytes.subspan(at * row_bytes, row_bytes), row);
    check_finite(row, cols, at, tensor.entry->name);
  }
}

}  // namespace bw::model
